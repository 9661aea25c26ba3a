// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Kind is a kind of fault of a simulated kubelet or its agent.
type Kind string

// The kinds of faults.
const (
	Reject    Kind = "reject"    // the dry run rejects the configuration
	CrashLoop Kind = "crashloop" // the kubelet exits soon after each start
	Unhealthy Kind = "unhealthy" // the kubelet runs but is never healthy
	NotReady  Kind = "notready"  // the kubelet is healthy but its Node is not Ready
	Silent    Kind = "silent"    // the agent does not run; the Node stays Ready
	Slow      Kind = "slow"      // the kubelet takes longer to become healthy
)

var kinds = []Kind{Reject, CrashLoop, Unhealthy, NotReady, Silent, Slow}

// Fault says what goes wrong, on which nodes, and with which configurations.
// Except for Silent and Slow, faults occur only with configurations from the
// API: a node's local configuration always works.
type Fault struct {
	Kind  Kind
	Delay time.Duration // only for Slow: the additional time

	// The nodes with the fault: this share of all nodes (up to 1), chosen by a
	// hash of kind and name and so always the same ones, or these names. If
	// neither is set, all nodes.
	Share float64
	Nodes []string

	// The payloads with the fault: they contain this text, and have this value
	// in this field, such as "logging.verbosity". If both are empty, all
	// payloads.
	Payload      string
	Field, Value string
}

// ParseFault parses
// KIND[=DURATION][,share=PERCENT%][,node=NAME]...[,payload=TEXT][,field=PATH:VALUE].
// A comma in a value is written "\,".
func ParseFault(text string) (Fault, error) {
	f, err := parseFault(text)
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return Fault{}, fmt.Errorf("fault %q: %w", text, err)
	}

	return f, nil
}

func parseFault(text string) (Fault, error) {
	parts := splitEscaped(text)
	kind, delay, delayed := strings.Cut(parts[0], "=")
	f := Fault{Kind: Kind(kind)}
	if delayed {
		var err error
		if f.Delay, err = time.ParseDuration(delay); err != nil || f.Kind != Slow {
			return f, fmt.Errorf("only slow has a value, which is a duration: slow=5s")
		}
	}

	for _, part := range parts[1:] {
		key, value, ok := strings.Cut(part, "=")
		if !ok || value == "" {
			return f, fmt.Errorf("%q is not key=value", part)
		}

		switch key {
		case "share":
			number, percent := strings.CutSuffix(value, "%")
			share, err := strconv.ParseFloat(number, 64)
			if err != nil || !percent || !(share > 0 && share <= 100) {
				return f, fmt.Errorf("share must be a percentage above 0%% and up to 100%%, not %q", value)
			}

			f.Share = share / 100
		case "node":
			f.Nodes = append(f.Nodes, value)
		case "payload":
			f.Payload = value
		case "field":
			path, want, ok := strings.Cut(value, ":")
			if !ok || path == "" {
				return f, fmt.Errorf("field must be PATH:VALUE, such as maxPods:7, not %q", value)
			}

			f.Field, f.Value = path, strings.TrimSpace(want)
		default:
			return f, fmt.Errorf("unknown key %q: use share, node, payload or field", key)
		}
	}

	return f, nil
}

// splitEscaped splits at commas that do not follow a backslash. An argument of a
// command contains no zero byte.
func splitEscaped(text string) []string {
	parts := strings.Split(strings.ReplaceAll(text, `\,`, "\x00"), ",")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], "\x00", ",")
	}

	return parts
}

func (f Fault) check() error {
	switch {
	case !slices.Contains(kinds, f.Kind):
		return fmt.Errorf("unknown kind %q: use reject, crashloop, unhealthy, notready, silent or slow=DURATION", f.Kind)
	case f.Kind == Slow && f.Delay <= 0:
		return errors.New("slow needs a duration: slow=5s")
	case f.Share > 0 && len(f.Nodes) > 0:
		return errors.New("set either a share of the nodes or names, not both")
	case f.Kind == Silent && (f.Payload != "" || f.Field != ""):
		return errors.New("silent cannot be limited to payloads")
	}

	return nil
}

// matchesNode reports whether a node has the fault.
func (f Fault) matchesNode(node string) bool {
	switch {
	case len(f.Nodes) > 0:
		return slices.Contains(f.Nodes, node)
	case f.Share == 0:
		return true
	}

	sum := sha256.Sum256([]byte(string(f.Kind) + "/" + node))

	return float64(binary.BigEndian.Uint64(sum[:8]))/math.Exp2(64) < f.Share
}

// matchesPayload reports whether the fault occurs with a configuration; nil is
// the local one.
func (f Fault) matchesPayload(p *payload.Payload) bool {
	if p == nil {
		return f.Kind == Slow && f.Payload == "" && f.Field == ""
	}
	if !strings.Contains(string(p.Data), f.Payload) {
		return false
	}
	if f.Field == "" {
		return true
	}

	value, _ := component.Effective(p.Fields).Field(f.Field)

	return value != nil && fmt.Sprint(value) == f.Value
}

// behaviour is the combined effect of faults on a kubelet with one
// configuration.
type behaviour struct {
	rejects, crashes, unhealthy, notReady bool
	delay                                 time.Duration
}

// behaviourOf combines the faults of a node.
func behaviourOf(faults []Fault, p *payload.Payload) behaviour {
	var b behaviour
	for _, f := range faults {
		if !f.matchesPayload(p) {
			continue
		}

		switch f.Kind {
		case Reject:
			b.rejects = true
		case CrashLoop:
			b.crashes = true
		case Unhealthy:
			b.unhealthy = true
		case NotReady:
			b.notReady = true
		case Slow:
			b.delay += f.Delay
		}
	}

	return b
}
