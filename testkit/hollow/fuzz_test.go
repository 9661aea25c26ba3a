// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func FuzzFault(f *testing.F) {
	for _, text := range []string{"crashloop", "slow=5s,share=10%", `reject,node=a,node=b,payload=a\,b`, "unhealthy,field=maxPods:7", "slow=-1s", "silent,share=NaN%", ",", `a\`, "notready,share=1e-300%", "reject,share=100%,node=a"} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		fault, err := ParseFault(text)
		if err != nil {
			assert.That(t, strings.HasPrefix(err.Error(), "fault "), "%q is refused with %v", text, err)
			return
		}

		if fault.check() != nil || !(fault.Share >= 0 && fault.Share <= 1) || fault.Share > 0 && len(fault.Nodes) > 0 || fault.Delay < 0 {
			t.Errorf("%q was accepted as %+v", text, fault)
		}
	})
}
