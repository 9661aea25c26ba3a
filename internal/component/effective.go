// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// Effective is the effective configuration of a component as the component
// printed it, with the API's JSON names. Numbers are json.Number.
type Effective map[string]any

// Field returns the value at a path of JSON field names, such as
// "authentication.x509.clientCAFile". A map key with a dot is in brackets:
// "evictionHard[memory.available]". Names match in any case, except in
// brackets.
func (e Effective) Field(path string) (any, bool) {
	if path == "" {
		return nil, false
	}

	return e.field(splitPath(path))
}

// String returns the string at path, or "".
func (e Effective) String(path string) string {
	v, _ := e.Field(path)
	s, _ := v.(string)
	return s
}

// Int returns the integer at path.
func (e Effective) Int(path string) (int64, bool) {
	v, _ := e.Field(path)
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}

	i, err := n.Int64()

	return i, err == nil
}

func (e Effective) field(path []segment) (any, bool) {
	var value any = map[string]any(e)
	for _, s := range path {
		fields, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		if value, ok = s.in(fields); !ok {
			return nil, false
		}
	}

	return value, true
}

// segment is one element of a path: the name of a field, or the exact key of a
// map.
type segment struct {
	name  string
	exact bool
}

func (s segment) in(fields map[string]any) (any, bool) {
	if v, ok := fields[s.name]; ok || s.exact {
		return v, ok
	}

	for name, v := range fields {
		if strings.EqualFold(name, s.name) {
			return v, true
		}
	}

	return nil, false
}

func splitPath(path string) []segment {
	var segments []segment
	for path != "" {
		if rest, ok := strings.CutPrefix(path, "["); ok {
			key, after, _ := strings.Cut(rest, "]")
			segments = append(segments, segment{name: key, exact: true})
			path = strings.TrimPrefix(after, ".")
			continue
		}

		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}

		segments = append(segments, segment{name: path[:end]})
		path = strings.TrimPrefix(path[end:], ".")
	}

	return segments
}

func joinPath(path []segment) (joined string) {
	for _, s := range path {
		joined = payload.JoinPath(joined, s.name)
	}

	return joined
}

// decodeEffective decodes a printed configuration: dry runs print Go field
// names of the internal type, /configz prints API names.
func decodeEffective(text []byte) (Effective, error) {
	fields, err := payload.DecodeMapping(text)
	if err != nil {
		return nil, err
	}

	return payload.Canonical(fields), nil
}

// leaves calls visit with the path of every field that is set. A mapping is
// walked, a list is one value, and null is not set.
func leaves(fields map[string]any, prefix []segment, visit func(path []segment, value any)) {
	for name, value := range fields {
		path := append(slices.Clip(prefix), segment{name: name})
		if inner, ok := value.(map[string]any); ok && len(inner) > 0 {
			leaves(inner, path, visit)
		} else if value != nil {
			visit(path, value)
		}
	}
}

// notJudged is what no kubelet judges away from a node.
const notJudged = "what a kubelet checks with its node, such as files, reservations, resource managers and the container runtime: " +
	"ask the nodes with kubectl evenkeel preflight"

var (
	reservable      = []string{"cpu", "memory", "ephemeral-storage", "pid"}
	evictionSignals = []string{"memory.available", "allocatableMemory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available",
		"imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "pid.available"}
)

// textErrors returns what is wrong with the texts of a configuration that a
// kubelet parses only when it builds itself, which it does not do away from a
// node. A test compares it with kubelets on a node.
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
