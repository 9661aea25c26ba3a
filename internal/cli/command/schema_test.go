// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// checked returns the notes and the error about the fields of a configuration
// in the upstream form.
func checked(t *testing.T, config string) (notes string, err error) {
	t.Helper()
	return checkedAs(t, payload.UpstreamAPIVersion, config)
}

func checkedAs(t *testing.T, apiVersion, config string) (notes string, err error) {
	t.Helper()
	p := assert.Value(payload.Decode(payload.KeyKubelet, []byte("apiVersion: "+apiVersion+"\nkind: KubeletConfiguration\n"+config)))(t)
	var out bytes.Buffer
	err = (&Env{IOStreams: genericclioptions.IOStreams{ErrOut: &out}}).CheckFields(p)

	return out.String(), err
}

func TestAValueOfAWrongTypeIsAnErrorThatNamesTheFieldTheTypeAndTheValue(t *testing.T) {
	for _, tt := range []struct{ config, want string }{
		{`maxPods: "lots"`, `maxPods must be a whole number from -2147483648 to 2147483647, not "lots"`},
		{`maxPods: 1.5`, `maxPods must be a whole number from -2147483648 to 2147483647, not 1.5`},
		{`maxPods: 3000000000`, `, not 3000000000`},
		{`failSwapOn: "false"`, `failSwapOn must be true or false, without quotes, not "false"`},
		{`cgroupDriver: 7`, `cgroupDriver must be text, in quotes, not 7`},
		{`systemReserved: {cpu: 1}`, `systemReserved.cpu must be text, in quotes, not 1`},
		{`evictionHard: {memory.available: 5}`, `evictionHard[memory.available] must be text, in quotes, not 5`},
		{`featureGates: {NodeSwap: "true"}`, `featureGates.NodeSwap must be true or false, without quotes, not "true"`},
		{`clusterDNS: 10.0.0.10`, `clusterDNS must be a list, not "10.0.0.10"`},
		{`clusterDNS: [10]`, `clusterDNS[0] must be text, in quotes, not 10`},
		{`authentication: true`, `authentication must be a mapping, not true`},
		{`authentication: {anonymous: {enabled: 1}}`, `authentication.anonymous.enabled must be true or false, without quotes, not 1`},
		{`syncFrequency: 10`, `syncFrequency must be a duration, such as "10s", not 10`},
		{`syncFrequency: soon`, `syncFrequency must be a duration, such as "10s", not "soon"`},
		{`memoryThrottlingFactor: high`, `memoryThrottlingFactor must be a number, not "high"`},
		{`reservedMemory: [{numaNode: 0, limits: {memory: much}}]`, `reservedMemory[0].limits.memory must be a quantity, such as "500Mi", not "much"`},
		{`registerWithTaints: [{key: [a]}]`, `registerWithTaints[0].key must be text, in quotes, not a list`},
		{"a: 1\nmaxPods: x\npodPidsLimit: x\npodsPerCore: x\nkubeAPIQPS: x\nkubeAPIBurst: x\nport: x", "; and 1 more"},
	} {
		notes, err := checked(t, tt.config)
		assert.That(t, err != nil && strings.Contains(err.Error(), tt.want) && notes == "",
			"%s: %v with notes %q, want %s", tt.config, err, notes, tt.want)
	}

	_, err := checkedAs(t, payload.GroupedAPIVersion, "resources: {eviction: {evictionHard: {memory.available: 5}}}")
	assert.ErrorHas(t, err, "resources.eviction.evictionHard[memory.available] must be text", "in the grouped form")
}

func TestValuesOfTheRightTypeAreNoError(t *testing.T) {
	for _, config := range []string{
		"maxPods: 110\nfailSwapOn: false\nsyncFrequency: 1m30s\nclusterDNS: [10.0.0.10]\nfeatureGates: {NodeSwap: true}\nsystemReserved: {cpu: 500m}",
		"maxPods: 1e2\nmemoryThrottlingFactor: 1\nenableServer: null\nclusterDNS: null\ntracing: {}",
		"logging: {flushFrequency: 5, options: {json: {infoBufferSize: 64Ki, splitStream: true}}, vmodule: [{filePattern: a, verbosity: 2}]}",
		"logging: {flushFrequency: 5s}\nreservedMemory: [{numaNode: 0, limits: {memory: 1Gi, hugepages-2Mi: 4}}]",
		"registerWithTaints: [{key: a, effect: NoSchedule}]\nshutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 5}]",
	} {
		notes, err := checked(t, config)
		assert.That(t, err == nil && !strings.Contains(notes, "unknown"), "%s: %v, %q", config, err, notes)
	}
}

func TestTheSchemaHasEveryKnownField(t *testing.T) {
	for _, f := range payload.Fields {
		if f.Since != 0 {
			continue // the upstream type does not have it yet
		}

		at := reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]()
		for part := range strings.SplitSeq(f.Path, ".") {
			for at.Kind() == reflect.Pointer || at.Kind() == reflect.Slice {
				at = at.Elem()
			}

			field, similar := fieldNamed(at, part)
			if field == nil {
				t.Errorf("%s is not in the schema (similar: %q)", f.Path, similar)
				break
			}

			at = field
		}
	}
}

func TestAnUnknownFieldIsANoteThatNamesASimilarField(t *testing.T) {
	notes, err := checked(t, "maxPods: 1\nmayPods: 1\nPodPidsLimit: 1\nlogging: {Format: json}")
	for _, want := range []string{
		`note: unknown field "mayPods" of KubeletConfiguration (did you mean maxPods?): a kubelet without this field`,
		`note: unknown field "PodPidsLimit" of KubeletConfiguration (did you mean podPidsLimit?): `,
		`note: unknown field "logging.Format" of KubeletConfiguration (did you mean format?): `,
	} {
		assert.That(t, err == nil && strings.Contains(notes, want) && strings.Count(notes, "unknown field") == 3, "%v, %q", err, notes)
	}
}

func TestNotesAboutUnknownFieldsAreLimited(t *testing.T) {
	var fields strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&fields, "x%03d: 1\n", i)
	}

	notes, err := checked(t, fields.String())
	assert.That(t, err == nil && strings.Count(notes, "\n") == 6 && strings.HasSuffix(notes, "note: and 995 more unknown fields\n"),
		"%v, %q; want five notes and the number of the others", err, notes)
	notes, err = checked(t, "a: 1\nb: 1\nc: 1\nd: 1\ne: 1\nf: 1")
	assert.That(t, err == nil && strings.HasSuffix(notes, "note: and 1 more unknown field\n"), "%v, %q", err, notes)
}

func TestAProtectedFieldIsANoteOnlyIfItIsThere(t *testing.T) {
	one := "note: authentication.anonymous.enabled is a protected field: a node refuses a value that differs from its local configuration, unless its agent is started with --protected-fields=-authentication.anonymous.enabled\n"
	for _, tt := range []struct{ config, want string }{
		{"maxPods: 1", ""},
		{"authentication: {anonymous: {enabled: true}}", one},
		{"clusterDNS: [10.0.0.10]\nfeatureGates: {NodeLogQuery: true}", "note: protected fields: clusterDNS, featureGates.NodeLogQuery; a node refuses values that differ from its local configuration, unless its agent's --protected-fields allows them\n"},
		{"logging: {verbosity: 4}", ""},
		{"logging: {verbosity: 9}", "note: logging.verbosity is a protected field: "},
		{"podPidsLimit: 100", "note: podPidsLimit is a protected field: a node refuses other values than these: free up to the local value; -1 and 0 are no limit, unless its agent is started with --protected-fields=-podPidsLimit\n"},
		{"podPidsLimit: 100\nclusterDNS: [10.0.0.10]", "note: protected fields: clusterDNS, podPidsLimit (free up to the local value; -1 and 0 are no limit); a node"},
		{"mayPods: 1", "note: unknown field \"mayPods\""},
	} {
		notes, err := checked(t, tt.config)
		assert.That(t, err == nil && strings.HasPrefix(notes, tt.want) && (tt.want != "" || notes == ""), "%s: %v, %q", tt.config, err, notes)
	}

	notes, _ := checked(t, "mayPods: 1")
	assert.That(t, !strings.Contains(notes, "protected"), "an unknown field is called protected: %q", notes)
}

func TestProtectedFieldsAreShownAsTheFileNamesThem(t *testing.T) {
	var all []string
	for _, f := range payload.Fields {
		if f.Path == "clusterDNS" {
			all = append(all, payload.GroupedPath(f.Path))
		}
	}

	path := all[0]
	group, _, _ := strings.Cut(path, ".")
	notes, err := checkedAs(t, payload.GroupedAPIVersion, fmt.Sprintf("%s: {clusterDNS: [10.0.0.10]}", group))
	assert.That(t, err == nil && slices.Contains(strings.Fields(notes), path), "%s: %v, %q", path, err, notes)
}

func TestAWholeConfigurationOfFewFieldsIsANote(t *testing.T) {
	const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for config, want := range map[string]string{
		"maxPods: 50\n": "note: this whole configuration sets 1 field, and all other fields get their defaults; to change only these, use --drop-in\n",
		"maxPods: 50\npodPidsLimit: 100\nauthorization: {mode: Webhook}\nclusterDomain: a\n": "",
	} {
		for key, want := range map[string]string{payload.KeyKubelet: want, payload.KeyKubeletDropin: ""} {
			notes := &bytes.Buffer{}
			(&Env{IOStreams: genericclioptions.IOStreams{ErrOut: notes}}).NoteFewFields(assert.Value(payload.Decode(key, []byte(header+config)))(t))
			assert.Equal(t, notes.String(), want, key, config)
		}
	}
}

func TestThresholdsThatAConfigurationRemovesAreNamed(t *testing.T) {
	const note = "note: evictionHard replaces all default thresholds, so these are unset: imagefs.available, imagefs.inodesFree, " +
		"nodefs.available, nodefs.inodesFree; set them too, or mergeDefaultEvictionSettings: true\n"
	for config, want := range map[string]string{
		"evictionHard: {memory.available: 100Mi}":                                     note,
		"evictionHard: {memory.available: 100Mi}\nmergeDefaultEvictionSettings: true": "",
		"evictionHard: {}": "",
		"evictionHard: {memory.available: 1Gi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%, imagefs.inodesFree: 1%}": "",
	} {
		notes, err := checked(t, config)
		assert.NoError(t, err)
		assert.Equal(t, notes, want, config)
	}
}
