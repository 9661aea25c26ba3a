// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// flaggedKubelet is the body of a fake kubelet that has flags, files with one
// field a line, and its own rules: --low must be below --high, --strict is
// refused, and --fail-x must be false.
const flaggedKubelet = `
value() { printf '%s\n' "$config" "$dropins" | sed -n "s/^ *$1: *//p" | tail -n 1; }
max=$(value maxPods) high=$(value High) low=$(value Low) failX=$(value FailX) list=$(value allowedUnsafeSysctls)

for a in "$@"; do
  name="${a%%=*}"; v="${a#*=}"
  case "$name" in
  --max-pods|--pods-per-core) echo "Flag $name has been deprecated, This parameter should be set via the config file specified by the kubelet's --config flag." >&2;;
  esac
  case "$name" in
  --max-pods) max=$v;;
  --high) high=$v;; --low) low=$v;; --fail-x) failX=$v;; --list) list="[$v]";;
  esac
done
[ "${low:-80}" -lt "${high:-85}" ] || end "low is not below high"
case "$config" in *no-runtime*) failX=false;; esac
[ "${failX:-true}" = false ] || end "x"
dump "{\"MaxPods\":${max:-110},\"High\":${high:-85},\"Low\":${low:-80},\"FailX\":${failX:-true},\"AllowedUnsafeSysctls\":${list:-[]}$EXTRA}"
accept`

// flagged returns a fake kubelet with a local configuration and flags.
func flagged(t *testing.T, body, local string, flags ...string) *Kubelet {
	t.Helper()
	file := filepath.Join(t.TempDir(), "local.yaml")
	write(t, file, local, 0o600)
	k := assert.Value(ParseKubelet(slices.Concat([]string{fake(t, body).Path, "--config=" + file}, flags)))(t)

	return k
}

func TestTheKubeletFindsTheFieldsOfItsFlags(t *testing.T) {
	k := flagged(t, flaggedKubelet, "allowedUnsafeSysctls: [\"a\"]\n", "--max-pods=250", "--pods-per-core", "0", "--node-ip=10.0.0.1", "--low=30", "--high=40",
		"--fail-x=false", "--max-pods=200", "--list=", "-v=3", "--manifest-url-header=a:b", "--kubeconfig=/etc/kubeconfig")
	got := assert.Value(dryRunner(t, k).ConvertFlags(context.Background(), ""))(t)
	config := "--config=" + k.Config
	want := FlagConversion{
		Flags: []ConvertedFlag{
			{Name: "config", Args: []string{config}},
			{Name: "max-pods", Args: []string{"--max-pods=250", "--max-pods=200"}, Fields: []string{"maxPods"}, Removed: true},
			{Name: "pods-per-core", Args: []string{"--pods-per-core", "0"}, Removed: true},
			{Name: "node-ip", Args: []string{"--node-ip=10.0.0.1"}},
			{Name: "low", Args: []string{"--low=30"}, Fields: []string{"Low"}, Removed: true},
			{Name: "high", Args: []string{"--high=40"}, Fields: []string{"High"}, Removed: true},
			{Name: "fail-x", Args: []string{"--fail-x=false"}, Fields: []string{"FailX"}, Removed: true},
			{Name: "list", Args: []string{"--list="}, Fields: []string{"allowedUnsafeSysctls"}, Removed: true},
			{Name: "v", Args: []string{"-v=3"}},
			{Name: "manifest-url-header", Args: []string{"--manifest-url-header=a:b"}, Fields: []string{headerField}, Kept: "the kubelet does not print the values of this field"},
			{Name: "kubeconfig", Args: []string{"--kubeconfig=/etc/kubeconfig"}},
		},
		Remaining: []string{k.Path, config, "--node-ip=10.0.0.1", "-v=3", "--manifest-url-header=a:b", "--kubeconfig=/etc/kubeconfig"},
	}
	dropin := got.Dropin
	got.Dropin = nil
	assert.NoDiff(t, cmp.Diff(want, got))
	assert.Equal(t, string(dropin), dropinText("FailX: false\nHigh: 40\nLow: 30\nallowedUnsafeSysctls: []\nmaxPods: 200\n"))
}

func TestAConversionThatIsNotEquivalentListsTheDifferences(t *testing.T) {
	// A kubelet that ignores maxPods in a file.
	k := flagged(t, strings.ReplaceAll(flaggedKubelet, "max=$(value maxPods)", "max="), "FailX: false\n", "--max-pods=250")
	got := assert.Value(dryRunner(t, k).ConvertFlags(context.Background(), ""))(t)
	assert.NoDiff(t, cmp.Diff([]payload.Difference{{Field: "maxPods", Value: "110", Local: "250"}}, got.Differences))
}

func TestAFlagStaysIfItsFieldIsNotFoundWithoutIt(t *testing.T) {
	k := flagged(t, `for a in "$@"; do [ "$a" = --needed ] && needed=1; done
case "$config" in *no-runtime*) needed=1;; esac
[ "$needed" ] || end "no"
dump '{"MaxPods":110}'; accept`, "", "--needed", "--max-pods=110")
	got := assert.Value(dryRunner(t, k).ConvertFlags(context.Background(), ""))(t)
	want := []ConvertedFlag{
		{Name: "config", Args: []string{"--config=" + k.Config}},
		{Name: "needed", Args: []string{"--needed"}, Kept: "without it, the kubelet does not accept its command line: no"},
		{Name: "max-pods", Args: []string{"--max-pods=110"}}, // the kubelet does not say that it is a field
	}
	diff := cmp.Diff(want, got.Flags)
	assert.That(t, diff == "" && got.Dropin == nil && got.Differences == nil, "-want +got\n%s, drop-in %q, differences %v", diff, got.Dropin, got.Differences)
}

func TestAConversionFailsWithTheWordsOfTheKubelet(t *testing.T) {
	for name, tt := range map[string]struct{ body, want string }{
		"another program": {`end "bad"`, "the dry run does not work with this kubelet: bad"},
		"no dump":         {`quiet; accept`, "this kubelet does not print its configuration in a known form"},
		"refused at all":  {`dump '{"MaxPods":110}'; case "$config" in LOCAL) end "bad";; esac; accept`, "the present command line: bad"},
		"dumps no more":   {`case "$config" in LOCAL) quiet;; *) dump '{"MaxPods":110}';; esac; accept`, "the present command line: the kubelet did not print its configuration"},
		"refused drop-in": {`m=110; for a in "$@"; do case "$a" in --max-pods=*) m=2;; esac; done; case "$dropins" in ?*) end "bad";; esac; dump "{\"MaxPods\":$m}"; accept`, "the drop-in instead of the flags: bad"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dryRunner(t, flagged(t, tt.body, "LOCAL", "--max-pods=2")).ConvertFlags(context.Background(), "")
			assert.That(t, err != nil && err.Error() == tt.want, "got %v, want %s", err, tt.want)
		})
	}

	t.Run("unreadable drop-ins", func(t *testing.T) {
		missing := filepath.Join(t.TempDir(), "none")
		k := flagged(t, `m=110; for a in "$@"; do case "$a" in --max-pods=*) m=2;; esac; done; dump "{\"MaxPods\":$m}"; accept`, "", "--max-pods=2", "--config-dir="+missing)
		_, err := dryRunner(t, k).ConvertFlags(context.Background(), "")
		if want := "the node's own drop-in directory " + missing; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

func TestAnotherKubeletNamesTheFlagsThatItDoesNotHave(t *testing.T) {
	newer := filepath.Join(t.TempDir(), "kubelet")
	write(t, newer, `#!/bin/sh
for a in "$@"; do case "$a" in
--gone*) echo 'E1121 07:10:36.358684   21610 run.go:72] "command failed" err="failed to parse kubelet flag: unknown flag: --gone"' >&2; exit 1;;
--max-pods=many) echo 'invalid argument' >&2; exit 1;;
esac; done
echo Kubernetes v1.37.2
`, 0o755)
	ask := func(path string, flags ...string) (string, []string, error) {
		k := assert.Value(ParseKubelet(append([]string{"/usr/bin/kubelet"}, flags...)))(t)
		return k.UnknownFlags(context.Background(), path)
	}
	if version, unknown, err := ask(newer, "--max-pods=2", "--gone", "yes", "-v=2"); err != nil || version != "v1.37.2" || !slices.Equal(unknown, []string{"gone"}) {
		t.Errorf("%s has no %q: %v", version, unknown, err)
	}
	if _, _, err := ask(newer, "--max-pods=many"); err == nil || err.Error() != `kubelet --version: exit code 1, "invalid argument" is not a version` {
		t.Errorf("a value that it refuses: %v", err)
	}
	if _, _, err := ask("/no/kubelet"); err == nil || err.Error() != "there is no kubelet at /no/kubelet: file does not exist" {
		t.Errorf("a missing kubelet: %v", err)
	}
}
