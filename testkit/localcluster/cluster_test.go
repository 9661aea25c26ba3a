// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"path/filepath"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAProgramThatStopsAtStartIsReportedWithItsLogAndNothingRuns(t *testing.T) {
	wrong := []string{"--no-such-flag"}
	for program, o := range map[string]Options{"etcd": {EtcdFlags: wrong}, "kube-apiserver": {APIServerFlags: wrong}} {
		o.Dir = filepath.Join(t.TempDir(), "cluster")
		err := assert.Err(Start(t.Context(), o))
		for _, want := range []string{program + " stopped: unexpected end: exit status ", "no-such-flag"} {
			assert.ErrorHas(t, err, want)
		}

		assert.OK(t, traces(o.Dir, "none", "none"), "a broken", program)
	}
}
