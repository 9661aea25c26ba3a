// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// flaggedKubelet is the body of a fake kubelet that ignores maxPods in files.
const flaggedKubelet = `m=110; for a in "$@"; do case "$a" in --max-pods=*) m=2;; esac; done; dump "{\"MaxPods\":$m}"; accept`

func TestAConversionThatIsNotEquivalentListsTheDifferences(t *testing.T) {
	got := assert.Value(dryRunner(t, fakeWithLocal(t, flaggedKubelet, "", "--max-pods=2")).ConvertFlags(context.Background(), ""))(t)
	assert.NoDiff(t, cmp.Diff([]payload.Difference{{Field: "maxPods", Value: "110", Local: "2"}}, got.Differences))
}

func TestAFlagThatIsNeededIsReplacedOnlyByTheFieldOfItsName(t *testing.T) {
	k := fakeWithLocal(t, `for a in "$@"; do case "$a" in --needed) needed=1;; --fail-x=false) x=1;; esac; done
case "$config$dropins" in *no-runtime*) needed=1 x=1;; *"FailX: false"*) x=1;; esac
[ "$needed$x" = 11 ] || end "no"
dump '{"MaxPods":110,"FailX":false}'; accept`, "", "--needed", "--max-pods=110", "--fail-x=false")
	got := assert.Value(dryRunner(t, k).ConvertFlags(context.Background(), ""))(t)
	want := []ConvertedFlag{
		{Name: "config", Args: []string{"--config=" + k.Config}},
		{Name: "needed", Args: []string{"--needed"}, Kept: "without it, the kubelet does not accept its command line: no"},
		{Name: "max-pods", Args: []string{"--max-pods=110"}}, // the kubelet does not say that it is a field
		{Name: "fail-x", Args: []string{"--fail-x=false"}, Fields: []string{"FailX"}, Removed: true},
	}
	assert.NoDiff(t, cmp.Diff(want, got.Flags))
	assert.Equal(t, string(got.Dropin), dropinText("FailX: false\n"))
	assert.That(t, got.Differences == nil, "differences %v", got.Differences)
}

func TestAConversionFailsWithTheWordsOfTheKubelet(t *testing.T) {
	for name, tt := range map[string]struct{ body, want string }{
		"another program": {`end "bad"`, "the dry run does not work with this kubelet: bad"},
		"no dump":         {`quiet; accept`, "this kubelet does not print its configuration in a known form"},
		"refused at all":  {`dump '{"MaxPods":110}'; case "$config" in LOCAL) end "bad";; esac; accept`, "the present command line: bad"},
		"dumps no more":   {`case "$config" in LOCAL) quiet;; *) dump '{"MaxPods":110}';; esac; accept`, "the present command line: the kubelet did not print its configuration"},
		"refused drop-in": {`case "$dropins" in ?*) end "bad";; esac; ` + flaggedKubelet, "the drop-in instead of the flags: bad"},
	} {
		_, err := dryRunner(t, fakeWithLocal(t, tt.body, "LOCAL", "--max-pods=2")).ConvertFlags(context.Background(), "")
		assert.Error(t, err, tt.want, name)
	}

	k := fakeWithLocal(t, flaggedKubelet, "", "--max-pods=2", "--config-dir=/nowhere")
	_, err := dryRunner(t, k).ConvertFlags(context.Background(), "")
	assert.Error(t, err, "the node's own drop-in directory /nowhere: lstat /nowhere: no such file or directory")
}
