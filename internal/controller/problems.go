// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel/evenkeel/internal/printable"
)

// problems are errors that keep the controller from working, by their subject.
type problems struct {
	mu      sync.Mutex
	errs    map[string]error
	changed func(subject string, err error) // called for each change; err is nil when a problem is solved
}

// set records the result of the last attempt; nil is success.
func (p *problems) set(subject string, err error) {
	p.mu.Lock()
	was := p.errs[subject]
	if err == nil {
		delete(p.errs, subject)
	} else {
		p.errs[subject] = err
	}
	p.mu.Unlock()
	if (was == nil) != (err == nil) || err != nil && was.Error() != err.Error() {
		p.changed(subject, err)
	}
}

// err returns all problems as one error; nil if there is none.
func (p *problems) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, subject := range slices.Sorted(maps.Keys(p.errs)) {
		errs = append(errs, p.errs[subject])
	}
	return errors.Join(errs...)
}

// count returns the number of problems.
func (p *problems) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.errs)
}

// unknownField reports whether the API server refuses a field that its CRD does not have. Writes use strict validation:
// without it, the API server would silently drop a part of an assignment.
func unknownField(err error) bool {
	return err != nil && strings.Contains(err.Error(), fieldUnknown)
}

const fieldUnknown = "unknown field"

// advise adds to an error of the API server what to do about it, where that is known. what is the resource of the request,
// with its version.
func advise(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the API server does not serve %s: kubectl apply -f install.yaml (%w)", what, err)
	case unknownField(err):
		_, which, _ := strings.Cut(err.Error(), fieldUnknown) // the rest is the whole object
		return fmt.Errorf("cannot %s: the API server's CRD is older than this controller: kubectl apply -f install.yaml (%s%s)", what,
			fieldUnknown, printable.Cut(which, 200))
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), `" cannot `): // not so an admission webhook or a quota
		return fmt.Errorf("the controller lacks permission: %s: kubectl apply -f install.yaml grants it (%w)", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
