// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestConfigzDifferencesAreThoseOfValuesNotOfForms(t *testing.T) {
	for name, tt := range map[string]struct {
		started, running string
		want             []string
	}{
		"Go names":               {`{"MaxPods": 110, "ClusterDNS": ["a"]}`, `{"maxPods": 110, "clusterDNS": ["a"]}`, nil},
		"the type":               {`{"maxPods": 110}`, `{"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", "maxPods": 110}`, nil},
		"zeros that are omitted": {`{"podCIDR": "", "runOnce": false, "podsPerCore": 0, "clusterDNS": [], "memorySwap": {"swapBehavior": ""}, "tlsCipherSuites": null}`, `{}`, nil},
		"headers are masked": {`{"staticPodURLHeader": {"Authorization": ["<masked>"]}}`,
			`{"staticPodURLHeader": {"Authorization": ["Bearer secret"]}}`, nil},
		"a value":           {`{"maxPods": 110}`, `{"maxPods": 55}`, []string{"maxPods"}},
		"a zero":            {`{"maxPods": 110, "enableServer": true}`, `{"maxPods": 0}`, []string{"enableServer", "maxPods"}},
		"a list":            {`{"clusterDNS": ["a", "b"]}`, `{"clusterDNS": ["b", "a"]}`, []string{"clusterDNS"}},
		"a key":             {`{"evictionHard": {"memory.available": "1Gi"}, "featureGates": {"A": true}}`, `{"featureGates": {"A": false}}`, []string{"evictionHard[memory.available]", "featureGates.A"}},
		"a header":          {`{}`, `{"staticPodURLHeader": {"Authorization": ["Bearer secret"]}}`, []string{"staticPodURLHeader.Authorization"}},
		"an unknown field":  {`{"future": 1}`, `{"future": 2}`, []string{"future"}},
		"a hostile answer":  {`{"maxPods": 110}`, `{"maxPods": {"a": 1}, "x\n": 1}`, []string{"maxPods", `x\n`}},
		"numbers are equal": {`{"kubeAPIQPS": 50}`, `{"kubeAPIQPS": 50.0}`, nil},
	} {
		started := effectiveOf(t, tt.started)
		assert.NoDiff(t, cmp.Diff(tt.want, ConfigzDifferences(started, effectiveOf(t, tt.running))), name, "it differs in")
		assert.NoDiff(t, cmp.Diff(effectiveOf(t, tt.started), started), name, "the arguments were changed")
	}
}

func TestLocalFilesAndTheirDigestFollowEachChange(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, text string) func() error {
		return func() error {
			return errors.Join(os.MkdirAll(filepath.Dir(at(name)), 0o700), os.WriteFile(at(name), []byte(text), 0o600))
		}
	}
	k := &Kubelet{Config: at("config.yaml"), ConfigDir: at("conf.d")}
	assert.NoError(t, put("init", "maxPods: 2")())
	seen := map[string]string{k.LocalDigest(at("init")): "an init file"}
	before := map[string]string{}
	for _, step := range []struct {
		name    string
		do      func() error
		changed string
	}{
		{"the directory cannot be read", func() error { return nil }, "conf.d"},
		{"a file", put("config.yaml", "maxPods: 1"), "config.yaml"},
		{"a drop-in", put("conf.d/10.conf", "a"), "conf.d conf.d/10.conf"},
		{"a nested drop-in", put("conf.d/sub/20.conf", "a"), "conf.d/sub/20.conf"},
		{"no drop-in", put("conf.d/ignored.yaml", "a"), ""},
		{"the drop-in was edited", put("conf.d/10.conf", "b"), "conf.d/10.conf"},
		{"the drop-in was renamed", func() error { return os.Rename(at("conf.d/10.conf"), at("conf.d/05.conf")) }, "conf.d/05.conf conf.d/10.conf"},
		{"the file was edited", put("config.yaml", "maxPods: 3"), "config.yaml"},
		{"the file became a pipe, which nobody waits for", func() error {
			return errors.Join(os.Remove(at("config.yaml")), syscall.Mkfifo(at("config.yaml"), 0o600))
		}, "config.yaml"},
		{"a drop-in cannot be read", func() error { return os.Symlink("nowhere", at("conf.d/30.conf")) }, "conf.d conf.d/05.conf conf.d/sub/20.conf"},
		{"the file is gone", func() error { return os.Remove(at("config.yaml")) }, "config.yaml"},
	} {
		assert.NoError(t, step.do())
		after := k.LocalFiles("")
		all := maps.Clone(before)
		maps.Copy(all, after)
		maps.DeleteFunc(all, func(path, _ string) bool { return before[path] == after[path] })
		changed := strings.Join(slices.Sorted(maps.Keys(all)), " ")
		assert.Equal(t, strings.ReplaceAll(changed, dir+"/", ""), step.changed, step.name)
		digest := k.LocalDigest("")
		assert.Equal(t, k.LocalDigest(""), digest, step.name, "again")
		assert.That(t, (seen[digest] == "") == (step.changed != ""), "%s: the digest is that of %q", step.name, seen[digest])
		seen[digest], before = step.name, after
	}

	same := (&Kubelet{ConfigDir: tree(t, map[string]string{"a.conf": "x", "sub/b.conf": "x"})}).LocalFiles("")
	assert.Equal(t, len(slices.Compact(slices.Sorted(maps.Values(same)))), 1, "digests of equal files")
	init := k.LocalFiles(at("init"))
	assert.That(t, len(init) == 1 && init[at("init")] != "", "with an init file: %v", init)
	assert.Equal(t, len((&Kubelet{}).LocalFiles("")), 0, "without a local configuration")
}
