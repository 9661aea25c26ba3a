// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// Shortened dumps of a kubelet up to 1.36 and of one from 1.37.
const (
	goDump  = `{"Authentication": {"X509": {"ClientCAFile": ""}}, "Authorization": {}, "ContainerRuntimeEndpoint": "unix:///none", "HealthzPort": 10248, "MaxPods": 110, "ReadOnlyPort": 0, "EvictionHard": null}`
	apiDump = "apiVersion: kubelet.config.k8s.io/v1beta1\nauthentication:\n  x509: {}\nauthorization: {}\ncontainerRuntimeEndpoint: unix:///none\nenforceNodeAllocatable:\n- pods\nhealthzPort: 10248\nkind: KubeletConfiguration\nmaxPods: 110\n"
)

func TestADumpIsFoundByItsStructure(t *testing.T) {
	goShape, apiShape := shapeOf([]string{goDump}, "unix:///none"), shapeOf([]string{apiDump}, "unix:///none")
	assert.Must(t, goShape != nil && apiShape != nil, "not recognized: %v, %v", goShape, apiShape)
	for _, tt := range []struct {
		name   string
		shape  *dumpShape
		values []string
		want   string // maxPods and readOnlyPort; "" for no dump
	}{
		{"Go's names", goShape, []string{strings.Replace(goDump, "110", "5", 1)}, "5 0"},
		{"the API's names", apiShape, []string{strings.Replace(apiDump, "110", "5", 1)}, "5 0"},
		{"the API's names, in JSON", apiShape, []string{`{"authentication": {}, "authorization": {}, "containerRuntimeEndpoint": "", "enforceNodeAllocatable": [], "healthzPort": 1, "maxPods": 5, "readOnlyPort": 10255}`}, "5 10255"},
		{"Go's names of a binary that now writes the API's", goShape, []string{strings.Replace(goDump, "110", "5", 1), "a line"}, "5 0"},
		{"none", apiShape, nil, ""},
		{"two", apiShape, []string{apiDump, strings.Replace(apiDump, "110", "5", 1)}, ""},
		{"more than are kept", apiShape, []string{apiDump, "a", "b", "c"}, ""},
		{"one field less", apiShape, []string{strings.Replace(apiDump, "healthzPort: 10248\n", "", 1)}, ""},
		{"one field more", apiShape, []string{apiDump + "brandNew: 1\n"}, "110 0"},
		{"a quotation that is no mapping", apiShape, []string{"- " + strings.ReplaceAll(apiDump, "\n", "\n  ")}, ""},
		{"a second document", apiShape, []string{apiDump + "---\n" + apiDump}, ""},
	} {
		e, got := tt.shape.read(tt.values), ""
		if e != nil {
			got = fmt.Sprint(e["maxPods"], " ", e["readOnlyPort"])
		}

		assert.That(t, got == tt.want, "%s: got %q, want %q: %v", tt.name, got, tt.want, e)
		assert.That(t, e["apiVersion"] == nil && e["kind"] == nil, "%s: %v and %v are no fields", tt.name, e["apiVersion"], e["kind"])
	}
}

func TestOtherMappingsAreNotTakenForADump(t *testing.T) {
	for name, values := range map[string][]string{
		"nothing":                     nil,
		"of another configuration":    {strings.Replace(apiDump, "unix:///none", "unix:///run/other", 1)},
		"without what every dump has": {"maxPods: 110\n"},
		"two":                         {apiDump, apiDump},
		"no text at all":              {"\x00\xff"},
	} {
		s := shapeOf(values, "unix:///none")
		assert.That(t, s == nil, "%s: %+v", name, s)
	}
}

func TestFieldsThatABinaryOmitsAreNotRequiredInADump(t *testing.T) {
	s := shapeOf([]string{apiDump}, "unix:///none")
	e, _ := findDump([]string{apiDump}, anchorFields)
	probe := s.probeConfig(e, emptyFields(payload.UpstreamAPIVersion, "unix:///none"))
	assert.That(t, fmt.Sprint(probe["enforceNodeAllocatable"]) == "[]" && probe["authentication"] == nil, "the probe is %v", probe)
	without := strings.Replace(apiDump, "enforceNodeAllocatable:\n- pods\n", "", 1)
	assert.That(t, s.read([]string{without}) == nil, "a field that every dump has is missing")
	s.learn([]string{without}, "unix:///elsewhere")
	assert.That(t, s.read([]string{without}) == nil, "learned from the dump of another configuration")
	s.learn([]string{without}, "unix:///none")
	e = s.read([]string{without})
	assert.That(t, e != nil && e["enforceNodeAllocatable"] == nil, "got %v", e)
}

// A kubelet may log a payload that quotes a whole dump. A run must use the
// kubelet's own dump or none.
func TestAQuotedDumpIsNeverUsed(t *testing.T) {
	shape := shapeOf([]string{apiDump}, "unix:///none")
	rapid.Check(t, func(t *rapid.T) {
		forged := strings.Replace(apiDump, "110", "666", 1)
		around := rapid.SampledFrom([]string{"%s", "x\n%s", "%s\n >\n", "\" err=<\n%s", "strict decoding error: unknown field \"%s\"", "{\"a\": %q}", "\n >\nI1121 07:10:36.358684   21610 server.go:72] \"x\" config=<\n\t%s\n >\n"}).Draw(t, "around")
		quoted := fmt.Sprintf(around, forged)
		values := []string{quoted, apiDump}
		if rapid.Bool().Draw(t, "the quotation is last") {
			slices.Reverse(values)
		}

		var log bytes.Buffer
		inJSON := rapid.Bool().Draw(t, "JSON")
		switch oneRecord := rapid.Bool().Draw(t, "one record"); {
		case oneRecord && inJSON:
			fmt.Fprintf(&log, `{"msg":"m","key0":%s,"key1":%s}`+"\n", jsonText(values[0]), jsonText(values[1]))
		case oneRecord: // on one line, too
			fmt.Fprintf(&log, "I"+logHeader+`"m" key0=%q key1=%q`+"\n", values[0], values[1])
		default:
			for i, value := range values {
				writeRecord(&log, inJSON, "m", fmt.Sprint("key", i), value)
			}
		}

		e := shape.read(outputOf(log.String(), mayBeDump).dumps)
		assert.Must(t, e == nil || fmt.Sprint(e["maxPods"]) == "110", "maxPods is %v in\n%s", e["maxPods"], log.String())
	})
}
