// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// conditions are n of different types, with the same message.
func conditions(n int, message string) []metav1.Condition {
	all := make([]metav1.Condition, n)
	for i := range all {
		all[i] = metav1.Condition{
			Type: fmt.Sprintf("Type%d", i), Status: metav1.ConditionTrue, Reason: "R", Message: message, ObservedGeneration: 1,
			LastTransitionTime: metav1.NewTime(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)),
		}
	}

	return all
}

// reportAs replaces the status of a node's NodeConfig as that node.
func reportAs(t *testing.T, node string, status any) (*unstructured.Unstructured, error) {
	t.Helper()
	patch := assert.Value(json.Marshal([]any{map[string]any{"op": "add", "path": "/status", "value": status}}))(t)
	return asNode(node).Patch(t.Context(), node, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
}

// content is a status as it is sent, so that a test can reach any string in it.
func content(t *testing.T, status *v1alpha1.NodeConfigStatus) map[string]any {
	t.Helper()
	return assert.Value(runtime.DefaultUnstructuredConverter.ToUnstructured(status))(t)
}

// stored is the size of a status as the API server keeps it.
func stored(t *testing.T, o *unstructured.Unstructured) int {
	t.Helper()
	raw := assert.Value(json.Marshal(o.Object["status"]))(t)
	return len(raw)
}

var countedSize = regexp.MustCompile(`reported a status of (\d+) bytes`)

// tooLarge returns the size that a refusal names.
func tooLarge(t *testing.T, err error) int {
	t.Helper()
	wantRefused(t, err, http.StatusUnprocessableEntity, "bytes for NodeConfig largest, but a status may have at most 65536")
	if err == nil {
		return 0
	}

	match := countedSize.FindStringSubmatch(err.Error())
	assert.Must(t, match != nil, "%v names no size", err)
	size, _ := strconv.Atoi(match[1])

	return size
}

// largestStatus has every field set and every list full, and is as large as a
// status may be.
func largestStatus(t *testing.T) *v1alpha1.NodeConfigStatus {
	t.Helper()
	status := fullStatus()
	status.Conditions = conditions(v1alpha1.MaxConditions, strings.Repeat("m", 1000))
	status.Error = strings.Repeat("e", v1alpha1.MaxErrorLength)
	for i := range status.BadConfigs {
		status.BadConfigs[i].Reason = strings.Repeat("r", 3500)
	}

	status.Conditions[0].Message = ""
	_, err := reportAs(t, "largest", status)
	excess := tooLarge(t, err) - v1alpha1.MaxStatusBytes
	for i := 0; i < len(status.BadConfigs) && excess > 0; i++ {
		less := min(excess, 3000)
		status.BadConfigs[i].Reason = status.BadConfigs[i].Reason[less:]
		excess -= less
	}

	return status
}

func TestTheLargestStatusIsSixtyFourKilobytes(t *testing.T) {
	given(t, "metadata: {name: largest}")
	status := largestStatus(t)
	o := assert.Value(reportAs(t, "largest", status))(t)
	size := stored(t, o)
	assert.That(t, size <= v1alpha1.MaxStatusBytes && size >= v1alpha1.MaxStatusBytes-1024,
		"%d bytes are stored, want at most %d and not much less", size, v1alpha1.MaxStatusBytes)

	// One byte more is refused in each of its strings, whether its own bound or
	// the whole's forbids it.
	paths := 0
	eachString(content(t, status), "status", func(path string, longer func() map[string]any) {
		paths++
		t.Run(path, func(t *testing.T) {
			wantRefused(t, assert.Err(reportAs(t, "largest", longer())), http.StatusUnprocessableEntity)
		})
	})
	assert.That(t, paths >= 200, "only %d strings were tried", paths)
}

// eachString calls visit for each string in an object, with a function that
// returns the object with that string one byte longer.
func eachString(object map[string]any, path string, visit func(path string, longer func() map[string]any)) {
	var walk func(value any, path string, set func(any))
	walk = func(value any, path string, set func(any)) {
		switch v := value.(type) {
		case string:
			visit(path, func() map[string]any {
				set(v + "x")
				defer set(v)
				return runtime.DeepCopyJSON(object)
			})
		case map[string]any:
			for key, inner := range v {
				walk(inner, path+"."+key, func(to any) { v[key] = to })
			}
		case []any:
			for i, inner := range v {
				walk(inner, fmt.Sprintf("%s[%d]", path, i), func(to any) { v[i] = to })
			}
		}
	}
	walk(object, path, func(any) {})
}

// Each text has its own limit in bytes, not only in characters.
func TestEachTextOfAStatusIsBoundedInBytes(t *testing.T) {
	given(t, "metadata: {name: texts}")
	const id, identifier = v1alpha1.MaxIdentifierLength, "of more than 253 bytes"
	const long, message = v1alpha1.MaxErrorLength, "an error or a message of more than 8192 bytes"
	type status = v1alpha1.NodeConfigStatus
	revision := func(s string) *v1alpha1.ConfigRevision { return &v1alpha1.ConfigRevision{Name: s} }
	bad := func(b v1alpha1.BadConfig) status { return status{BadConfigs: []v1alpha1.BadConfig{{}, b}} }
	for name, test := range map[string]struct {
		most int
		with func(text string) status
		want string
	}{
		"error":   {long, func(s string) status { return status{Error: s} }, message},
		"message": {long, func(s string) status { return status{Conditions: conditions(2, s)} }, message},
		"reason": {v1alpha1.MaxBadReasonLength, func(s string) status { return bad(v1alpha1.BadConfig{Reason: s}) },
			"a reason of more than 4096 bytes"},
		"overridden field": {v1alpha1.MaxOverriddenFieldLength, func(s string) status { return status{OverriddenFields: []string{"", s}} },
			"a field of more than 512 bytes"},
		"assigned": {id, func(s string) status { return status{Assigned: &v1alpha1.ConfigRevision{Namespace: s}} }, identifier},
		"active":   {id, func(s string) status { return status{Active: revision(s)} }, identifier},
		"lastKnownGood": {id, func(s string) status {
			return status{LastKnownGood: &v1alpha1.LastKnownGoodConfig{ConfigRevision: *revision(s)}}
		}, identifier},
		"bad uid":          {id, func(s string) status { return bad(v1alpha1.BadConfig{UID: types.UID(s)}) }, identifier},
		"componentVersion": {id, func(s string) status { return status{ComponentVersion: s} }, identifier},
		"agentVersion":     {id, func(s string) status { return status{AgentVersion: s} }, identifier},
	} {
		t.Run(name, func(t *testing.T) {
			report := func(text string) error { return assert.Err(reportAs(t, "texts", test.with(text))) }
			two := strings.Repeat("é", test.most/2) + strings.Repeat("e", test.most%2)
			assert.OK(t, report(two), len(two), "bytes")
			wantRefused(t, report(two+"x"), http.StatusUnprocessableEntity, "system:node:texts reported ", test.want, "of NodeConfig texts")
		})
	}
}

// A character may take more bytes in JSON than in the string: a status of them
// must not be larger than another.
func TestEscapedCharactersDoNotExceedTheLargestStatus(t *testing.T) {
	given(t, "metadata: {name: largest}")
	for name, char := range map[string]string{
		"angle brackets": "<", "ampersands": "&", "bells": "\a", "backspaces": "\b", "form feeds": "\f", "vertical tabs": "\v",
		"escapes": "\x1b", "zeros": "\x00", "quotes": `"`, "backslashes": `\`, "newlines": "\n", "deletes": "\x7f", "C1": "\u0085",
		"overrides": "\u202e", "line separators": "\u2028", "tags": "\U000e0041", "four bytes": "😀",
	} {
		t.Run(name, func(t *testing.T) {
			fits := func(n int) bool {
				o, err := reportAs(t, "largest", &v1alpha1.NodeConfigStatus{
					BadConfigs: slices.Repeat([]v1alpha1.BadConfig{{Reason: strings.Repeat(char, n)}}, v1alpha1.MaxBadConfigs),
					Error:      strings.Repeat(char, min(2*n, v1alpha1.MaxErrorLength/len(char))),
				})
				if err != nil {
					if n*len(char) <= v1alpha1.MaxBadReasonLength {
						tooLarge(t, err)
					}

					return false
				}

				size := stored(t, o)
				assert.That(t, size <= v1alpha1.MaxStatusBytes, "%d characters are stored in %d bytes", n, size)

				return true
			}
			tooMany := sort.Search(v1alpha1.MaxBadReasonLength+1, func(n int) bool { return !fits(n) })
			assert.That(t, tooMany > 400, "%d characters do not fit", tooMany)
		})
	}
}

// metadata.managedFields is the one thing besides the status that a write to
// nodeconfigs/status changes: it has an entry for each field manager, whose
// name the node chooses.
func TestANodeCannotFillItsNodeConfigWithManagedFields(t *testing.T) {
	const refused = "bytes of metadata.managedFields for NodeConfig fields, but a node may write at most 16384"
	fields := map[string]any{}
	for i := range 2000 {
		fields[fmt.Sprintf("f:made-up-%d", i)] = map[string]any{}
	}

	raw, err := json.Marshal(map[string]any{"f:status": fields})
	assert.NoError(t, err)
	forge := func(o *unstructured.Unstructured, subresource string) {
		o.SetManagedFields(append(o.GetManagedFields(), metav1.ManagedFieldsEntry{
			Manager: "forged", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "evenkeel.dev/v1alpha1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(string(raw)), Subresource: subresource,
		}))
	}

	o := parse("metadata: {name: fields}")
	removeAtEnd(t, o)
	forge(o, "")
	_, err = asNode("fields").Create(t.Context(), o, metav1.CreateOptions{})
	wantRefused(t, err, http.StatusUnprocessableEntity, refused)
	assert.NoError(t, assert.Err(asNode("fields").Create(t.Context(), parse("metadata: {name: fields}"), metav1.CreateOptions{})))
	for _, subresource := range []string{"status", "", "scale"} {
		o := get(t, "fields")
		o.Object["status"] = map[string]any{"error": "forged"}
		forge(o, subresource)
		o, err = asNode("fields").UpdateStatus(t.Context(), o, metav1.UpdateOptions{})
		assert.NoError(t, err)
		for _, entry := range o.GetManagedFields() {
			assert.That(t, entry.Manager != "forged", "managedFields were kept as they were sent, with the subresource %q", subresource)
		}
	}

	// Many managers, each with little, come to the same end.
	for i := 0; ; i++ {
		assert.Must(t, i != 1000, "a thousand managers were taken")
		body := fmt.Sprintf(`{"apiVersion":"evenkeel.dev/v1alpha1","kind":"NodeConfig","status":{"agentVersion":"v%d","runMode":"Host","componentVersion":"v1.37.2"}}`, i)
		_, err := asNode("fields").Patch(t.Context(), "fields", types.ApplyPatchType, []byte(body),
			metav1.PatchOptions{FieldManager: fmt.Sprintf("manager-%0100d", i), Force: new(true)}, "status")
		if err != nil {
			wantRefused(t, err, http.StatusUnprocessableEntity, refused)
			break
		}
	}

	// The agent, which applies nothing, reports all the same.
	assert.OK(t, assert.Err(reportAs(t, "fields", &v1alpha1.NodeConfigStatus{Error: "reported"})))
}

// Content that other clients wrote into a NodeConfig does not count against the
// node's limit.
func TestANodeReportsDespiteLargeMetadata(t *testing.T) {
	given(t, "metadata: {name: beside}\nspec: {configSource: {local: {}}}")
	labels := map[string]string{}
	for i := range 500 {
		labels[fmt.Sprintf("label-of-somebody-else-%d", i)] = "a"
	}

	o := get(t, "beside")
	o.SetLabels(labels)
	o = assert.Value(asAdmin().Update(t.Context(), o, metav1.UpdateOptions{}))(t)
	if raw, err := json.Marshal(o.GetManagedFields()); err != nil || len(raw) < v1alpha1.MaxStatusFieldsBytes {
		t.Fatalf("the labels make %d bytes of managedFields, error %v", len(raw), err)
	}

	assert.OK(t, assert.Err(reportAs(t, "beside", largestStatusOfTexts())))
}

// largestStatusOfTexts has eight conditions of the longest types, which make
// the most managedFields.
func largestStatusOfTexts() *v1alpha1.NodeConfigStatus {
	s := fullStatus()
	s.Conditions = conditions(v1alpha1.MaxConditions, "m")
	for i := range s.Conditions {
		s.Conditions[i].Type = strings.Repeat("a", 62) + fmt.Sprint(i) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c", 63) +
			"." + strings.Repeat("d", 61) + "/" + strings.Repeat("e", 62)
	}

	s.BadConfigs, s.OverriddenFields = nil, nil

	return s
}
