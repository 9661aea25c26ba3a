// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// laidOver returns a drop-in candidate.
func laidOver(more string) Candidate { return Candidate{Data: []byte(dropinText(more)), Dropin: true} }

func dropinText(more string) string {
	return "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + more
}

// started renders a candidate and returns the effective configuration of a
// kubelet with the resulting command line. The kubelet stops at the end of
// stage 1.
func started(t *testing.T, k *Kubelet, c Candidate, initFile string) Effective {
	t.Helper()
	files := assert.Value(k.Files(c, initFile))(t)
	h := &DryRunner{scratch: t.TempDir()}
	dir, err := h.makeScratch()
	assert.NoError(t, errors.Join(err, writeFiles(dir, files)))
	argv := append(k.Argv(RunConfig{InitFile: initFile, Dir: dir, Dropin: c.Dropin}, ""),
		"--exit-on-lock-contention", "-v=5", "--cert-dir="+filepath.Join(dir, "pki"), "--root-dir="+filepath.Join(dir, "root"))
	text, _ := exec.Command(argv[0], argv[1:]...).CombinedOutput() // it always fails
	caps := assert.Value(dryRunner(t, k).probe(context.Background()))(t)
	out := outputOf(string(text), mayBeDump)
	assert.Must(t, out.failureText() == acceptedStage1, "%q ended with %s", argv, out.failureText())

	return caps.shape.read(out.dumps)
}

// mustBeAsStarted compares the verdict's effective configuration with that of a
// started kubelet, except for the effects of the dry run.
func mustBeAsStarted(t *testing.T, validated, started Effective) {
	t.Helper()
	notOurs := cmp.FilterPath(func(p cmp.Path) bool {
		name := p.Last().String()
		return name == `["tlsCertFile"]` || name == `["tlsPrivateKeyFile"]` || name == `["verbosity"]`
	}, cmp.Ignore())
	assert.NoDiff(t, cmp.Diff(started, validated, notOurs))
}

func mustBeFields(t *testing.T, e Effective, want map[string]string) {
	t.Helper()
	for path, value := range want {
		v, _ := e.Field(path)
		assert.Equal(t, fmt.Sprint(v), value, path)
	}
}

// ownDir creates a drop-in directory with subdirectories, a link and other
// files.
func ownDir(t *testing.T) string {
	t.Helper()
	dir := tree(t, map[string]string{
		"10.conf":       dropinText("maxPods: 10\npodsPerCore: 10\nregistryBurst: 10\nkubeAPIBurst: 10\neventBurst: 10\nevictionHard: {nodefs.available: 3%}\n"),
		"50/z.conf":     dropinText("podsPerCore: 50\nregistryBurst: 50\nkubeAPIBurst: 50\neventBurst: 50\n"),
		"50.conf":       dropinText("registryBurst: 51\nkubeAPIBurst: 51\neventBurst: 51\nbogus: 1\n"), // after 50/, unlike in a sorted list of all paths
		"other/of-link": dropinText("kubeAPIBurst: 90\neventBurst: 90\n"),
		"README":        "not a drop-in",
	})
	assert.NoError(t, os.Symlink("other/of-link", filepath.Join(dir, "90.conf")))

	return dir
}

func TestTheRealKubeletMergesADropInOverTheNodesOwn(t *testing.T) {
	k := kubeletWith(t, noRuntime(t)+"maxPods: 1\nsyncFrequency: 7m\nevictionHard: {memory.available: 5%}\nfeatureGates: {NodeSwap: true}\n",
		"--config-dir="+ownDir(t), "--image-gc-high-threshold=91", "--feature-gates=CPUManagerPolicyAlphaOptions=true", "-v=3", "--seccomp-default")
	c := laidOver("eventBurst: 100\nmaxParallelImagePulls: 4\nserializeImagePulls: false\nevictionHard: {imagefs.available: 2%}\nfeatureGates: {CPUManagerPolicyBetaOptions: true}\nimageGCHighThresholdPercent: 88\nsyncFrequency: null\n")
	v := dryRunner(t, k).Check(context.Background(), c, "")
	assert.Must(t, v.Outcome == Accepted && v.Stage == 1 && len(v.Warnings) == 0, "got %s at stage %d: %s, warnings %q", v.Outcome, v.Stage, v.Message, v.Warnings)
	mustBeFields(t, v.Effective, map[string]string{
		"maxPods": "10", "podsPerCore": "50", "registryBurst": "51", "kubeAPIBurst": "90", "eventBurst": "100", "syncFrequency": "1m0s",
		"evictionHard[memory.available]": "5%", "evictionHard[nodefs.available]": "3%", "evictionHard[imagefs.available]": "2%",
		"imageGCHighThresholdPercent": "91", "logging.verbosity": "3",
	})
	mustBeFields(t, v.Local, map[string]string{"maxPods": "10", "eventBurst": "90", "syncFrequency": "7m0s", "imageGCHighThresholdPercent": "91", "logging.verbosity": "3"})
	assert.That(t, v.Effective["seccompDefault"] == true && v.Local["seccompDefault"] == true,
		"seccompDefault is %v, locally %v, want the flag's", v.Effective["seccompDefault"], v.Local["seccompDefault"])
	v.Effective["seccompDefault"] = false // as printed
	mustBeAsStarted(t, v.Effective, started(t, k, c, ""))
	assert.NoDiff(t, cmp.Diff([]string{"imageGCHighThresholdPercent"}, v.Overridden), "overridden")
	delete(v.Origins, "containerRuntimeEndpoint")
	want := map[string]Origin{
		"maxPods": "local", "podsPerCore": "local", "registryBurst": "local", "kubeAPIBurst": "local", "eventBurst": "drop-in",
		"failCgroupV1": "local", "evictionHard[memory.available]": "local", "evictionHard[nodefs.available]": "local", "evictionHard[imagefs.available]": "drop-in",
		"featureGates.NodeSwap": "local", "featureGates.CPUManagerPolicyAlphaOptions": "flag", "featureGates.CPUManagerPolicyBetaOptions": "drop-in",
		"imageGCHighThresholdPercent": "flag", "logging.verbosity": "flag", "seccompDefault": "flag",
		"maxParallelImagePulls": "drop-in", "serializeImagePulls": "drop-in",
	}
	assert.NoDiff(t, cmp.Diff(want, v.Origins), "origins")
}

func TestTheRealKubeletValidatesADropIn(t *testing.T) {
	h := dryRunner(t, kubeletWith(t, noRuntime(t)+"imageGCLowThresholdPercent: 60\n"))
	for _, tt := range []struct{ name, data, message string }{
		{"the wrong case, which would take effect", dropinText("StaticPodPath: /etc\n"), `strict decoding error: unknown field "StaticPodPath"`},
		{"out of range together with the local one", dropinText("imageGCHighThresholdPercent: 50\n"),
			"invalid configuration: imageGCLowThresholdPercent (--image-gc-low-threshold) 60 must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) 50"},
		{"out of range and unknown", dropinText("maxPods: -1\nbogus: 1\n"),
			`invalid configuration: maxPods (--max-pods) -1 must not be a negative number; strict decoding error: unknown field "bogus"`},
		{"a wrong type", dropinText("maxPods: lots\n"),
			"failed to unmarshal merged JSON into kubelet configuration: json: cannot unmarshal string into Go struct field KubeletConfiguration.maxPods of type int32"},
		{"a duplicate key", dropinText("maxPods: 1\nmaxPods: 2\n"), `strict decoding error: yaml: unmarshal errors: line 4: key "maxPods" already set in map; ` +
			`strict decoding error: yaml: unmarshal errors: line 4: key "maxPods" already set in map`},
		{"null beside an unknown field", dropinText("syncFrequency: null\nauthentication: {webhook: {cacheTTL: null, bogus: 1}}\n"),
			`strict decoding error: unknown field "authentication.webhook.bogus"`},
		{"nothing", "", `kubelet config file "kubelet.conf.d/evenkeel.conf" was empty`},
		{"no kind", "maxPods: 1\n", "Object 'Kind' is missing"},
		{"the wrong kind", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: Nope\n", "unknown apiVersion/kind: kubelet.config.k8s.io/v1beta1, Kind=Nope"},
		{"no YAML", "{: [", "couldn't get version/kind; json parse error: invalid character ':' looking for beginning of object key string"},
	} {
		checkVerdict(t, h.Check(context.Background(), Candidate{Data: []byte(tt.data), Dropin: true}, ""), Rejected, 1, tt.message, tt.name)
	}

	const data = "imageGCHighThresholdPercent: 70\n"
	over := h.Check(context.Background(), laidOver(data), "")
	whole := h.Check(context.Background(), Candidate{Data: config(data)}, "")
	assert.That(t, over.Outcome == Accepted && whole.Outcome == Rejected, "over local %s (%s), whole %s", over.Outcome, over.Message, whole.Outcome)
}

func TestADropInIsMergedOverAnyLocalConfiguration(t *testing.T) {
	local := config(noRuntime(t) + "maxPods: 33\npodsPerCore: 33\n")
	dir := tree(t, map[string]string{"init/kubelet": string(local), "own/10.conf": string(local), "own/20.conf": dropinText("podsPerCore: 44\n")})
	initFile, own := filepath.Join(dir, "init", "kubelet"), "--config-dir="+filepath.Join(dir, "own")
	endpoint := "--container-runtime-endpoint=unix://" + filepath.Join(dir, "none.sock")
	for _, tt := range []struct {
		name     string
		flags    []string
		initFile string
		want     map[string]string
	}{
		{"nothing", []string{"--fail-cgroupv1=false", endpoint}, "", map[string]string{"maxPods": "77", "podsPerCore": "0"}},
		{"flags", []string{"--fail-cgroupv1=false", endpoint, "--pods-per-core=5", "--max-pods=6"}, "", map[string]string{"maxPods": "6", "podsPerCore": "5"}},
		{"a file", []string{"--config=" + initFile}, "", map[string]string{"maxPods": "77", "podsPerCore": "33"}},
		{"a directory", []string{own}, "", map[string]string{"maxPods": "77", "podsPerCore": "44"}},
		{"an init file instead of a directory", []string{own}, initFile, map[string]string{"maxPods": "77", "podsPerCore": "33"}},
		{"an init file instead of both", []string{own, "--config=/nowhere"}, initFile, map[string]string{"maxPods": "77", "podsPerCore": "33"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := assert.Value(ParseKubelet(append([]string{realKubelet(t)}, tt.flags...)))(t)
			c := laidOver("maxPods: 77\n")
			v := dryRunner(t, k).Check(context.Background(), c, tt.initFile)
			assert.Must(t, v.Outcome == Accepted, "got %s: %s", v.Outcome, v.Message)
			mustBeFields(t, v.Effective, tt.want)
			mustBeAsStarted(t, v.Effective, started(t, k, c, tt.initFile))
		})
	}
}

func TestAWholeConfigurationIsValidatedAsItWouldRun(t *testing.T) {
	k := kubeletWith(t, noRuntime(t), "--config-dir="+ownDir(t), "--max-pods=9")
	c := Candidate{Data: config(noRuntime(t) + "maxPods: 77\nsyncFrequency: 2m\n")}
	v := dryRunner(t, k).Check(context.Background(), c, "")
	mustBeAsStarted(t, v.Effective, started(t, k, c, ""))
	delete(v.Origins, "containerRuntimeEndpoint")
	assert.NoDiff(t, cmp.Diff(map[string]Origin{"maxPods": "flag", "syncFrequency": "remote", "failCgroupV1": "remote"}, v.Origins), "origins")
	mustBeFields(t, v.Local, map[string]string{"maxPods": "9", "eventBurst": "90"})
}

func TestTheCgroupFlagHidesNoOtherOverride(t *testing.T) {
	endpoint := "--container-runtime-endpoint=unix://" + filepath.Join(t.TempDir(), "none.sock")
	k := assert.Value(ParseKubelet([]string{realKubelet(t), "--fail-cgroupv1=false", endpoint, "--max-pods=6"}))(t)
	h := dryRunner(t, k)
	for name, tt := range map[string]struct {
		more       string
		overridden []string
		origins    map[string]Origin
	}{
		"not in the payload":           {"", []string{"maxPods"}, map[string]Origin{"maxPods": "flag", "podsPerCore": "drop-in", "failCgroupV1": "flag"}},
		"in the payload, and the same": {"failCgroupV1: false\n", []string{"maxPods"}, map[string]Origin{"maxPods": "flag", "podsPerCore": "drop-in", "failCgroupV1": "drop-in"}},
		"in the payload, overridden":   {"failCgroupV1: true\n", []string{"failCgroupV1", "maxPods"}, map[string]Origin{"maxPods": "flag", "podsPerCore": "drop-in", "failCgroupV1": "flag"}},
	} {
		v := h.Check(context.Background(), laidOver("maxPods: 7\npodsPerCore: 3\n"+tt.more), "")
		assert.Must(t, v.Outcome == Accepted && len(v.Warnings) == 0, "%s: got %s: %s, warnings %q", name, v.Outcome, v.Message, v.Warnings)
		assert.NoDiff(t, cmp.Diff(tt.overridden, v.Overridden), name, "overridden")
		delete(v.Origins, "containerRuntimeEndpoint")
		assert.NoDiff(t, cmp.Diff(tt.origins, v.Origins), name, "origins")
	}
}

func TestHeaderValuesMaskedByTheRealKubeletNeverAppear(t *testing.T) {
	const headers = "staticPodURLHeader: {Authorization: [s3cret-1], X-Same: [s3cret-2]}\n"
	k := kubeletWith(t, noRuntime(t)+headers)
	h := dryRunner(t, k)
	for name, tt := range map[string]struct {
		c    Candidate
		want []string
	}{
		"one changed":            {Candidate{Data: config(strings.Replace(headers, "cret-1", "cret-3", 1))}, []string{"staticPodURLHeader.Authorization"}},
		"a drop-in with another": {laidOver("staticPodURLHeader: {X-Same: [s3cret-3]}\n"), []string{"staticPodURLHeader.X-Same"}},
	} {
		v := h.Check(context.Background(), tt.c, "")
		assert.Must(t, v.Outcome == Accepted, "%s: got %s: %s", name, v.Outcome, v.Message)
		assert.NoDiff(t, cmp.Diff(tt.want, v.Hidden), name)
		assert.NoDiff(t, cmp.Diff(v.Local["staticPodURLHeader"], v.Effective["staticPodURLHeader"]), name, "what is masked looks different")
		text := cmp.Diff(v, Verdict{}, cmp.AllowUnexported())
		assert.That(t, !strings.Contains(text, "s3cret"), "%s: a secret got out: %s", name, text)
	}
}

func TestAFlagThatReplacesMaskedHeadersIsNamed(t *testing.T) {
	k := kubeletWith(t, noRuntime(t)+"staticPodURLHeader: {a: [local]}\n", "--manifest-url-header=a:flag")
	v := dryRunner(t, k).Check(context.Background(), laidOver("staticPodURLHeader: {a: [ours]}\n"), "")
	assert.That(t, v.Outcome == Accepted && v.Hidden == nil && v.Origins["staticPodURLHeader.a"] == OriginFlag, "got %s, hidden %q, origins %v", v.Outcome, v.Hidden, v.Origins)
	assert.NoDiff(t, cmp.Diff([]string{"staticPodURLHeader.a"}, v.Overridden), "overridden")
}

func TestTheRealKubeletValidatesADropInAtStage2(t *testing.T) {
	endpoint := "containerRuntimeEndpoint: " + startContainerd(t) + "\n"
	own := tree(t, map[string]string{"10.conf": dropinText("evictionHard: {memory.available: 5%}\n")})
	h := dryRunner(t, kubeletWith(t, endpoint, "--config-dir="+own))
	checkVerdict(t, h.Check(context.Background(), laidOver("maxPods: 77\n"), ""), Accepted, 2, "")
	v := h.Check(context.Background(), laidOver("evictionHard: {nodefs.available: banana}\n"), "")
	assert.That(t, v.Outcome == Rejected && v.Stage == 2 && strings.HasPrefix(v.Message, `evictionHard[nodefs.available]: "banana": quantities must match the regular expression`), "got %s at stage %d: %s", v.Outcome, v.Stage, v.Message)
	mustBeFields(t, v.Effective, map[string]string{"evictionHard[nodefs.available]": "banana", "evictionHard[memory.available]": "5%"})
	// The node's own drop-ins are below the candidate in stage 2, too.
	assert.NoError(t, os.WriteFile(filepath.Join(own, "10.conf"), []byte(dropinText("evictionHard: {memory.available: banana}\n")), 0o600))
	v = h.Check(context.Background(), laidOver("maxPods: 77\n"), "")
	assert.That(t, v.Outcome == CouldNotTell && v.Stage == 2 &&
		strings.HasPrefix(v.Message, "quantities must match the regular expression"),
		"got %s at stage %d: %s", v.Outcome, v.Stage, v.Message)
	checkVerdict(t, h.Check(context.Background(), laidOver("evictionHard: {memory.available: 4%}\n"), ""), Accepted, 2, "")
}
