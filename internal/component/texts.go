// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// notJudged is what no kubelet judges away from a node.
const notJudged = "what a kubelet checks with its node, such as files, reservations, resource managers and the container runtime: " +
	"ask the nodes with kubectl evenkeel preflight"

var (
	reservable      = []string{"cpu", "memory", "ephemeral-storage", "pid"}
	evictionSignals = []string{"memory.available", "allocatableMemory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available",
		"imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "pid.available"}
)

// textErrors returns what is wrong with the texts of a configuration that a kubelet parses only when it builds itself, which it does
// not do away from a node. A test compares it with kubelets on a node.
func textErrors(e Effective) (errs []string) {
	each := func(field string, keys []string, check func(value string) error) map[string]any {
		values, _ := e[field].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			value := fmt.Sprint(values[key])
			if !slices.Contains(keys, key) {
				errs = append(errs, fmt.Sprintf("%s[%s]: it must be one of %s", field, key, strings.Join(keys, ", ")))
			} else if err := check(value); err != nil {
				errs = append(errs, fmt.Sprintf("%s[%s]: %q: %v", field, key, value, err))
			}
		}
		return values
	}
	reservation := func(value string) error { return quantity(value, 0) }
	each("kubeReserved", reservable, reservation)
	each("systemReserved", reservable, reservation)
	each("evictionHard", evictionSignals, threshold)
	soft := each("evictionSoft", evictionSignals, threshold)
	periods := each("evictionSoftGracePeriod", evictionSignals, func(value string) error {
		d, err := time.ParseDuration(value)
		if err == nil && d < 0 {
			return fmt.Errorf("it must not be negative")
		}
		return err
	})
	each("evictionMinimumReclaim", evictionSignals, func(value string) error {
		if percent, is := strings.CutSuffix(value, "%"); is {
			if n, err := strconv.ParseFloat(strings.TrimRight(percent, "%"), 32); err != nil || n <= 0 {
				return fmt.Errorf("it must be a percentage above 0%%")
			}
			return nil
		}
		return quantity(value, 0)
	})
	for _, key := range slices.Sorted(maps.Keys(soft)) {
		ignored := soft[key] == "0%" || soft[key] == "100%"
		if slices.Contains(evictionSignals, key) && periods[key] == nil && !ignored {
			errs = append(errs, fmt.Sprintf("evictionSoft[%s]: it has no evictionSoftGracePeriod", key))
		}
	}
	if size := e.String("containerLogMaxSize"); size != "" {
		if err := quantity(size, 0); err != nil {
			errs = append(errs, fmt.Sprintf("containerLogMaxSize: %q: %v", size, err))
		}
	}
	return errs
}

// quantity returns an error unless a text is a quantity of at least least.
func quantity(text string, least int) error {
	q, err := payload.ParseQuantity(text)
	if err == nil && q.Sign() < least {
		return fmt.Errorf("it must be %d or more", least)
	}
	return err
}

// threshold returns an error unless a text is a threshold of an eviction.
func threshold(text string) error {
	percent, is := strings.CutSuffix(text, "%")
	if !is {
		return quantity(text, 1)
	}
	if n, err := strconv.ParseFloat(strings.TrimRight(percent, "%"), 32); err != nil || n < 0 || n > 100 {
		return fmt.Errorf("it must be a percentage from 0%% to 100%%")
	}
	return nil
}
