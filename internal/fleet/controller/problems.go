package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel/evenkeel/internal/fleet/policy"
)

// problems are what keeps the controller from seeing or writing what it must, by what it is about.
type problems struct {
	mu   sync.Mutex
	now  map[string]error
	news func(what string, err error) // told of each change; err is nil when a problem is over
}

// note says how the last try of something went.
func (p *problems) note(what string, err error) {
	p.mu.Lock()
	was := p.now[what]
	if err == nil {
		delete(p.now, what)
	} else {
		p.now[what] = err
	}
	p.mu.Unlock()
	if (was == nil) != (err == nil) || err != nil && was.Error() != err.Error() {
		p.news(what, err)
	}
}

// all returns everything that is wrong, nil if nothing is.
func (p *problems) all() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, what := range slices.Sorted(maps.Keys(p.now)) {
		errs = append(errs, p.now[what])
	}
	return errors.Join(errs...)
}

// count returns how many things are wrong.
func (p *problems) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.now)
}

// unknownField tells whether the API server refuses a field that its CRD does not have. Writes ask it to: what it dropped
// silently would be half an assignment.
func unknownField(err error) bool {
	return err != nil && strings.Contains(err.Error(), fieldUnknown)
}

const fieldUnknown = "unknown field"

// advise says of an error of the API server what to do about it, where that is known. What is the resource that was
// asked for, with its version.
func advise(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the API server does not serve %s: kubectl apply -k config/default (%w)", what, err)
	case unknownField(err):
		_, which, _ := strings.Cut(err.Error(), fieldUnknown) // the rest is the whole object
		return fmt.Errorf("cannot %s: the CRD that the API server has is older than this controller: kubectl apply -k config/default (%s%s)", what, fieldUnknown, policy.Cut(which, 200))
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the controller lacks a right to %s: kubectl apply -k config/default grants all that it needs (%w)", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
