// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Outcome says whether a kubelet would start with a configuration.
type Outcome string

// The outcomes.
const (
	WouldStart    Outcome = "would start"
	WouldNotStart Outcome = "would not start"
	NotJudged     Outcome = "not judged"
)

// Verdict is what another kubelet says about a configuration.
type Verdict struct {
	Outcome Outcome `json:"outcome"`
	// Message is the kubelet's error, what it would ignore, or why there is no
	// verdict.
	Message string `json:"message,omitempty"`
}

// Judged are the verdicts on all configurations, in numbers of nodes.
type Judged struct {
	Component  string          `json:"component"`
	Version    string          `json:"version"`
	Nodes      map[Outcome]int `json:"nodes"` // without those that could not be read
	NotChecked string          `json:"notChecked"`
}

const notChecked = "flags that the version no longer has, and what a kubelet checks with its node, such as files, reservations and " +
	"the container runtime"

// Judge lets another kubelet's binary, which has this version, judge each
// configuration in a dry run, and adds a sentence to the summary. If ctx ends,
// the rest is not judged.
func (r *Report) Judge(ctx context.Context, kubelet component.Component, version string) {
	r.Judged = &Judged{Component: kubelet.Name(), Version: version, Nodes: map[Outcome]int{}, NotChecked: notChecked}
	reasons := map[string]int{}
	for _, c := range r.Configurations {
		c.Verdict = judge(ctx, kubelet, c.fields)
		r.Judged.Nodes[c.Verdict.Outcome] += c.Nodes
		if c.Verdict.Outcome == WouldNotStart {
			reasons[c.Verdict.Message] += c.Nodes
		}
	}

	words := fmt.Sprintf("kubelet %s: %s would start", version, printable.Count(r.Judged.Nodes[WouldStart], "node"))
	if n := r.Judged.Nodes[WouldNotStart]; n > 0 {
		words += fmt.Sprintf("; %d would not: %s", n, printable.First(printable.MostFirst(reasons), 2, "; "))
	}
	if n := r.Judged.Nodes[NotJudged]; n > 0 {
		words += fmt.Sprintf("; %d not judged", n)
	}

	r.Summary = append(r.Summary, words)
}

// judge returns the verdict on one configuration. The values that only one node
// has are left out: every kubelet takes them.
func judge(ctx context.Context, kubelet component.Component, fields map[string]any) *Verdict {
	if ctx.Err() != nil {
		return &Verdict{NotJudged, "interrupted"}
	}

	fields = maps.Clone(fields)
	maps.DeleteFunc(fields, func(_ string, value any) bool { return value == Own })
	fields["apiVersion"], fields["kind"] = payload.UpstreamAPIVersion, payload.KubeletKind
	text, err := json.Marshal(fields)
	if err != nil {
		return &Verdict{NotJudged, err.Error()}
	}

	v, objections := component.ValidationErrors(ctx, kubelet, text)
	message := v.Message
	if len(objections) > 0 {
		message = strings.Join(objections, "; ")
	}

	switch {
	case v.Outcome == component.Accepted:
		return &Verdict{Outcome: WouldStart}
	// A kubelet only warns about fields that it does not know. An effective
	// configuration names all fields of its version.
	case v.Outcome == component.Rejected && strings.HasPrefix(message, "strict decoding error: "):
		return &Verdict{WouldStart, "it would ignore: " + strings.TrimPrefix(message, "strict decoding error: ")}
	case v.Outcome == component.Rejected:
		return &Verdict{WouldNotStart, message}
	}

	return &Verdict{NotJudged, message}
}
