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
	kubelets, err := filepath.Glob("../../../bin/tools/kubelets/*/kubelet")
	assert.NoError(t, err)
	line := regexp.MustCompile(`(?m)(\w+)=true\|false \((ALPHA|BETA) - default=(true|false)\)`)
	listed := map[stage]string{alpha: "ALPHA false", beta: "BETA true", betaOff: "BETA false"}
	for _, path := range append(kubelets, "../../../bin/tools/kubelet") {
		version, err := exec.Command(path, "--version").Output()
		assert.NoError(t, err)
		t.Run(strings.TrimSpace(strings.TrimPrefix(string(version), "Kubernetes ")), func(t *testing.T) {
			var minor int
			_, err := fmt.Sscanf(string(version), "Kubernetes v1.%d.", &minor)
			assert.NoError(t, err)
			help, err := exec.Command(path, "--help").Output()
			assert.NoError(t, err)
			found := map[string]string{}
			for _, m := range line.FindAllStringSubmatch(string(help), -1) {
				if found[m[1]] == "" { // a second line is the default of an API server that need not be compatible with older ones
					found[m[1]] = m[2] + " " + m[3]
				}
			}

			assert.Must(t, len(found) > 50 && minor >= oldestMinor && minor <= newestMinor, "minor %d, gates %v", minor, found)
			for name, stages := range gateStages {
				if want := listed[stages[minor-oldestMinor]]; found[name] != want {
					t.Errorf("%s: the kubelet lists %q, the table has %q", name, found[name], want)
				}
			}
		})
	}
}
