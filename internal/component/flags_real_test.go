// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// The flag tables are compared with the help of each kubelet that was built for
// the tests.

// helpLine matches a flag in pflag's help: its name, the name of its value, and
// its description.
var helpLine = regexp.MustCompile(`^ +(?:-[a-zA-Z], )?--([a-z0-9-]+)( \S+)?   +(.*)$`)

// inFile is the text in the help of a flag that sets a field of the
// configuration.
const inFile = "This parameter should be set via the config file"

// configFlags are the flags that set fields of the configuration although their
// help does not mention it.
var configFlags = []string{
	"fail-cgroupv1", "feature-gates", "log-flush-frequency", "log-json-info-buffer-size", "log-json-split-stream", "log-text-info-buffer-size",
	"log-text-split-stream", "logging-format", "provider-id", "seccomp-default", "tls-cipher-suites", "vmodule",
}

// goneFlags are flags of kubelets up to 1.36, most of them from libraries. They
// count as fields, which only costs a dry run.
var goneFlags = []string{
	"application-metrics-count-limit", "boot-id-file", "cloud-config", "container-hints", "containerd", "containerd-namespace",
	"enable-load-reader", "event-storage-age-limit", "event-storage-event-limit", "global-housekeeping-interval",
	"log-cadvisor-usage", "machine-id-file", "register-schedulable",
	"storage-driver-buffer-duration", "storage-driver-db", "storage-driver-host",
	"storage-driver-password", "storage-driver-secure", "storage-driver-table", "storage-driver-user",
}

func TestTheFlagTablesMatchTheHelpOfRealKubelets(t *testing.T) {
	for _, path := range realKubelets(t) {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			out := assert.Value(exec.Command(path, "--help").Output())(t)
			has := map[string]bool{}
			for line := range strings.Lines(string(out)) {
				found := helpLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
				if found == nil {
					continue
				}

				name, takes, what := found[1], found[2] != "", found[3]
				has[name] = true
				if name == "help" || name == "version" {
					continue // rejected
				}

				// In pflag's help, a word in backquotes in the text of a
				// boolean flag looks like the name of a value.
				if takes && booleans.Has(name) {
					said, _ := exec.Command(path, "--"+name+"=neither").CombinedOutput()
					takes = !strings.Contains(string(said), "strconv.ParseBool")
				}

				assert.That(t, takes != booleans.Has(name),
					"--%s: it takes a value: %v, but booleans has %v: %s", name, takes, booleans.Has(name), what)

				assert.That(t, takes || !valued.Has(name), "--%s takes no value, but valued has it", name)
				field := strings.Contains(what, inFile) || slices.Contains(configFlags, name) || slices.Contains(goneFlags, name)
				assert.That(t, field != notConfig.Has(name),
					"--%s: it sets a field: %v, but notConfig has %v: %s", name, field, notConfig.Has(name), what)
			}

			assert.Must(t, len(has) >= 100, "only %d flags in:\n%s", len(has), out)
			for name := range valued {
				assert.That(t, has[name], "there is no --%s", name)
			}
		})
	}
}
