// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// flaggedKubelet is a program that behaves like the dry run of a kubelet with --max-pods.
// It ignores the field maxPods of a drop-in if its flags have --deaf.
const flaggedKubelet = `#!/bin/sh
end() { echo "E1121 07:10:36.358684   21610 run.go:72] \"command failed\" err=\"$1\"" >&2; exit 1; }
for a in "$@"; do case "$a" in
--gone*) [ "${0##*/}" = newer ] && end "failed to parse kubelet flag: unknown flag: --gone";;
--version) echo "Kubernetes v1.37.2"; exit;;
--config=*) config=$(cat "${a#--config=}");;
--config-dir=*) dropins=$(cat "${a#--config-dir=}"/*.conf);;
--max-pods=*) flag=${a#*=};;
--deaf) deaf=1;;
--broken) end "broken";;
--picky) picky=1;;
esac; done
case "$config" in *evenkeelUnknownField*) end "strict decoding error: unknown field";; esac
max=$(printf '%s\n' "$dropins" | sed -n 's/^maxPods: //p' | tail -n 1)
[ "$deaf" ] && max=
case "$picky$dropins" in 1*Replaces*) end "picky";; esac
endpoint=$(echo "$config" | sed -n 's/.*"containerRuntimeEndpoint":"\([^"]*\)".*/\1/p')
printf 'I1121 07:10:36.358684   21610 server.go:72] "KubeletConfiguration" configuration=<\n' >&2
printf '\t{"Authentication":{},"Authorization":{},"ContainerRuntimeEndpoint":"%s","HealthzPort":10248,"MaxPods":%s}\n >\n' "$endpoint" "${flag:-${max:-110}}" >&2
end "failed to run Kubelet: cannot exit on lock file contention: no lock file specified"
`

func TestFlagsPrintsADropInAndTheRemainingCommandLine(t *testing.T) {
	dir := t.TempDir()
	kubelet, newer := filepath.Join(dir, "kubelet"), filepath.Join(dir, "newer")
	for _, path := range []string{kubelet, newer} {
		assert.NoError(t, os.WriteFile(path, []byte(flaggedKubelet), 0o755))
	}

	const unchanged = "# The kubelet's effective configuration stays the same, with this drop-in instead of the flags.\n"
	const dropin = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 250\n"
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"an equivalent drop-in", []string{"--", kubelet, "--max-pods=250", "--node-labels=a=it's\x1b,b"}, 0,
			"# These flags of the kubelet can be removed:\n#   --max-pods=250 (maxPods)\n# These flags stay:\n#   '--node-labels=a=it'\\''s\\x1b,b'\n" +
				"# The remaining command line:\n#   " + kubelet + " '--node-labels=a=it'\\''s\\x1b,b'\n" + unchanged + dropin},
		{"flags that a newer kubelet does not have", []string{"--newer-kubelet=" + newer, "--", kubelet, "--max-pods=250", "--gone"}, 0,
			"# These flags of the kubelet can be removed:\n#   --max-pods=250 (maxPods)\n# These flags stay:\n#   --gone (kubelet v1.37.2 does not have this flag)\n" +
				"# The remaining command line:\n#   " + kubelet + " --gone\n" + unchanged + dropin},
		{"nothing to convert", []string{"--", kubelet, "--manifest-url-header=a:b"}, 0,
			"# These flags stay:\n#   --manifest-url-header=a:b (staticPodURLHeader; it stays, because the kubelet does not print the values of this field)\n" +
				"# The remaining command line:\n#   " + kubelet + " --manifest-url-header=a:b\n# No flag can be removed.\n"},
		{"another meaning", []string{"--", kubelet, "--max-pods=250", "--deaf"}, 1,
			"# These flags of the kubelet can be removed:\n#   --max-pods=250 (maxPods)\n# These flags stay:\n#   --deaf\n# The remaining command line:\n#   " + kubelet +
				" --deaf\n# The kubelet's effective configuration would differ:\n#   maxPods: 110 instead of 250\n" + dropin +
				"evenkeel-agent: the drop-in is not equivalent to the flags: effective fields that would differ: 1\n"},
		{"a kubelet that fails", []string{"--", kubelet, "--broken"}, 2,
			"evenkeel-agent: could not tell: the present command line: broken\n"},
		{"no newer kubelet", []string{"--newer-kubelet=" + dir + "/none", "--", kubelet}, 2,
			"evenkeel-agent: could not tell: there is no kubelet at " + dir + "/none: file does not exist\n"},
		{"no kubelet", []string{"--", dir + "/none"}, 3, "evenkeel-agent: there is no kubelet at " + dir + "/none: file does not exist\n"},
	} {
		got, code := says(t, "", append([]string{"flags"}, c.args...)...)
		assert.That(t, code == c.code && got == c.want, "%s: exit code %d, want %d; got\n%swant\n%s", c.name, code, c.code, got, c.want)
	}
}

func TestAValueWithANewlineStaysInTheComment(t *testing.T) {
	var out strings.Builder
	comment(&out, "Flags:", []string{"--a=b\nmaxPods: 1"})
	want := "# Flags:\n#   --a=b\\nmaxPods: 1\n"
	assert.That(t, out.String() == want, "got %q, want %q", out.String(), want)
}
