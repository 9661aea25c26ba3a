// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// --help lists the alpha and beta gates of a kubelet with their defaults.
// Others are locked, deprecated or unknown.
func TestTheStagesOfGatesAreThoseOfTheKubeletsThatWereBuilt(t *testing.T) {
	localcluster.SkipShort(t)
	kubelets := assert.Value(filepath.Glob("../../../bin/tools/kubelets/*/kubelet"))(t)
	line := regexp.MustCompile(`(?m)(\w+)=true\|false \((ALPHA|BETA) - default=(true|false)\)`)
	listed := map[stage]string{alpha: "ALPHA false", beta: "BETA true", betaOff: "BETA false"}
	for _, path := range append(kubelets, "../../../bin/tools/kubelet") {
		version := assert.Value(exec.Command(path, "--version").Output())(t)
		t.Run(strings.TrimSpace(strings.TrimPrefix(string(version), "Kubernetes ")), func(t *testing.T) {
			var minor int
			assert.NoError(t, assert.Err(fmt.Sscanf(string(version), "Kubernetes v1.%d.", &minor)))
			help := assert.Value(exec.Command(path, "--help").Output())(t)
			found := map[string]string{}
			for _, m := range line.FindAllStringSubmatch(string(help), -1) {
				if found[m[1]] == "" { // a second line is the default of an API server that need not be compatible with older ones
					found[m[1]] = m[2] + " " + m[3]
				}
			}

			assert.Must(t, len(found) > 50 && minor >= oldestMinor && minor <= newestMinor, "minor %d, gates %v", minor, found)
			for name, stages := range gateStages {
				assert.Equal(t, found[name], listed[stages[minor-oldestMinor]], name)
			}
		})
	}
}
