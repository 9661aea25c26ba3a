// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestConfigzDifferencesAreThoseOfValuesNotOfForms(t *testing.T) {
	decode := func(text string) Effective {
		t.Helper()
		e := assert.Value(decodeEffective([]byte(text)))(t)
		return e
	}
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
		t.Run(name, func(t *testing.T) {
			started, running := decode(tt.started), decode(tt.running)
			before := decode(tt.started)
			got := ConfigzDifferences(started, running)
			assert.That(t, slices.Equal(got, tt.want), "it differs in %q, want %q", got, tt.want)
			assert.NoDiff(t, cmp.Diff(before, started), "the arguments were changed")
		})
	}
}

func TestLocalFilesAreTheConfigurationFileAndTheDropIns(t *testing.T) {
	dir := t.TempDir()
	config, drop := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "conf.d")
	write := func(file, text string) string {
		t.Helper()
		assert.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)))
		return file
	}
	k := &Kubelet{Config: config, ConfigDir: drop}
	if got := k.LocalFiles(""); len(got) != 1 || got[drop] == "" { // the directory cannot be read
		t.Errorf("without any file: %v", got)
	}

	write(config, "maxPods: 1")
	first, nested := write(filepath.Join(drop, "10.conf"), "a"), write(filepath.Join(drop, "sub", "20.conf"), "a")
	write(filepath.Join(drop, "ignored.yaml"), "a")
	before := k.LocalFiles("")
	assert.That(t, len(before) == 3 && before[config] != "" && before[first] != "" && before[first] == before[nested], "files are %v", before)
	write(first, "b")
	after := k.LocalFiles("")
	assert.That(t, after[first] != before[first] && after[nested] == before[nested] && after[config] == before[config], "files are %v, were %v", after, before)
	digest := k.LocalDigest("")
	assert.NoError(t, errors.Join(os.Remove(config), syscall.Mkfifo(config, 0o600)))
	if got := k.LocalDigest(""); got == digest { // neither does the digest of all files
		t.Errorf("with a pipe in place of the file: the digest is still %s", got)
	}
	if got := k.LocalFiles(""); got[config] == "" || got[config] == before[config] { // it does not wait for a writer
		t.Errorf("with a pipe in place of the file: %v, was %v", got, before)
	}

	init := write(filepath.Join(dir, "init"), "maxPods: 2")
	if got := k.LocalFiles(init); len(got) != 1 || got[init] == "" {
		t.Errorf("with an init file: %v", got)
	}
	if got := (&Kubelet{}).LocalFiles(""); len(got) != 0 {
		t.Errorf("without a local configuration: %v", got)
	}
}

func TestConfigzErrorsTellARefusalFromSilence(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Forbidden (user=system:node:a, verb=get, resource=nodes, subresource(s)=[configz])", http.StatusForbidden)
	}))
	_, err := Configz(context.Background(), server.Client(), server.URL)
	var refused *StatusError
	assert.That(t, errors.As(err, &refused) && refused.Code == http.StatusForbidden, "the error is %v", err)
	server.Close()
	_, err = Configz(context.Background(), http.DefaultClient, server.URL)
	var silent *url.Error
	assert.That(t, errors.As(err, &silent), "the error is %v", err)
}
