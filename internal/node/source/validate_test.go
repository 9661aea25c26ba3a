// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var (
	rbacV1 = schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	crdV1  = schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}
)

// sources are specs, and their classification by validate.
var sources = []struct {
	name   string
	source string // JSON
	kind   trial.IntentKind
	cause  string
}{
	{"absent", `null`, trial.Unassigned, ""},
	{"local", `{"local":{}}`, trial.Nil, ""},
	{"local by a rollout", `{"local":{},"rolloutRef":{"name":"a"}}`, trial.Nil, ""},
	{"a reference", `{"configMapRef":{"namespace":"a","name":"b.c","uid":"d-e"}}`, trial.Assigned, ""},
	{"a reference with a digest", `{"configMapRef":{"namespace":"a","name":"b","uid":"c","sha256":"` + strings.Repeat("a", 64) + `"}}`, trial.Assigned, ""},
	{"no subfield", `{}`, trial.Invalid, "invalid NodeConfigSource, exactly one subfield must be non-nil, but all were nil"},
	{"only a rollout", `{"rolloutRef":{"name":"a"}}`, trial.Invalid, "invalid NodeConfigSource, exactly one subfield must be non-nil, but all were nil"},
	{"two subfields", `{"local":{},"configMapRef":{"namespace":"a","name":"b","uid":"c"}}`, trial.Invalid, "invalid NodeConfigSource, exactly one subfield must be non-nil, but 2 were set: local and configMapRef"},
	{"no namespace", `{"configMapRef":{"name":"b","uid":"c"}}`, trial.Invalid, "invalid NodeConfigSource, configMapRef.namespace must be non-empty"},
	{"no name", `{"configMapRef":{"namespace":"a","uid":"c"}}`, trial.Invalid, "invalid NodeConfigSource, configMapRef.name must be non-empty"},
	{"no uid", `{"configMapRef":{"namespace":"a","name":"b"}}`, trial.Invalid, "invalid NodeConfigSource, configMapRef.uid must be non-empty"},
	{"a path as namespace", `{"configMapRef":{"namespace":"../a","name":"b","uid":"c"}}`, trial.Invalid, `invalid NodeConfigSource, configMapRef.namespace must be a DNS label of lower-case letters, digits and dashes, but is "../a"`},
	{"a path as name", `{"configMapRef":{"namespace":"a","name":"../b","uid":"c"}}`, trial.Invalid, `invalid NodeConfigSource, configMapRef.name must be a DNS name of lower-case letters, digits, dashes and dots, but is "../b"`},
	{"two dots as name", `{"configMapRef":{"namespace":"a","name":"..","uid":"c"}}`, trial.Invalid, `invalid NodeConfigSource, configMapRef.name must be a DNS name of lower-case letters, digits, dashes and dots, but is ".."`},
	{"a path as uid", `{"configMapRef":{"namespace":"a","name":"b","uid":"../../etc"}}`, trial.Invalid, `invalid NodeConfigSource, configMapRef.uid must be letters, digits, dots, dashes and underscores, beginning with a letter or digit, but is "../../etc"`},
	{"an absolute path as uid", `{"configMapRef":{"namespace":"a","name":"b","uid":"/etc"}}`, trial.Invalid, `invalid NodeConfigSource, configMapRef.uid must be letters, digits, dots, dashes and underscores, beginning with a letter or digit, but is "/etc"`},
	{"half a digest", `{"configMapRef":{"namespace":"a","name":"b","uid":"c","sha256":"abc"}}`, trial.Invalid, `invalid NodeConfigSource, configMapRef.sha256 must be 64 lower-case hexadecimal digits, but is "abc"`},
}

// An older CRD may accept what the present one refuses, so a source classifies
// whatever it sees.
func TestSpecIsClassifiedByTheProposalsRules(t *testing.T) {
	for _, c := range sources {
		t.Run(c.name, func(t *testing.T) {
			nc := &v1alpha1.NodeConfig{}
			assert.NoError(t, json.Unmarshal([]byte(`{"spec":{"configSource":`+c.source+`}}`), nc))
			kind, cause := validate(nc.Spec.ConfigSource)
			assert.That(t, kind == c.kind && cause == c.cause, "got %v, %q, want %v, %q", kind, cause, c.kind, c.cause)
			s := NewNodeConfigSource(admin, "node", &disk{}, quiet())
			s.see(nc, nil)
			if a, known := s.compose(); known == (c.kind == trial.Assigned) || known && (a.Kind != c.kind || c.cause != "" && a.Cause != c.cause) {
				t.Errorf("the answer is %+v, %t", a, known)
			}
		})
	}
}

func TestLongNamesAreInvalid(t *testing.T) {
	long := strings.Repeat("a", 600)
	for _, ref := range []v1alpha1.ConfigMapReference{
		{Namespace: long, Name: "b", UID: "c"}, {Namespace: "a", Name: long, UID: "c"}, {Namespace: "a", Name: "b", UID: types.UID(long)},
	} {
		kind, cause := validate(&v1alpha1.NodeConfigSource{ConfigMapRef: &ref})
		assert.That(t, kind == trial.Invalid && len(cause) <= 700, "%+v: got %v, %q", ref, kind, cause)
	}
}
