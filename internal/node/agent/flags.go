// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// answerFlags answers the newest request about the kubelet's flags.
func (a *Agent) answerFlags(ctx context.Context) {
	if a.p.Preflights == nil || a.p.Flags == nil {
		return
	}
	request := a.p.Preflights.FlagsRequest()
	a.flags.serve(ctx, a.tasks, request, nil, a.validations.busy(), func() func(context.Context) v1alpha1.FlagsAnswer {
		return func(ctx context.Context) v1alpha1.FlagsAnswer {
			text, err := a.p.Flags(ctx)
			answer := v1alpha1.FlagsAnswer{Request: request, Text: text}
			if err != nil {
				answer.Error = err.Error()
			}
			return answer
		}
	})
}
