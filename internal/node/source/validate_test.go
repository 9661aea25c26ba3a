package source

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

var (
	rbacV1 = schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	crdV1  = schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}
)

const crdFile = "../../../config/api/crd/evenkeel.dev_nodeconfigs.yaml"

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

func TestValidateSpecByTheProposalsRules(t *testing.T) {
	for _, c := range sources {
		t.Run(c.name, func(t *testing.T) {
			var s *v1alpha1.NodeConfigSource
			if err := json.Unmarshal([]byte(c.source), &s); err != nil {
				t.Fatal(err)
			}
			if kind, cause := validate(s); kind != c.kind || cause != c.cause {
				t.Errorf("got %v, %q, want %v, %q", kind, cause, c.kind, c.cause)
			}
		})
	}
}

func TestLongNamesAreInvalid(t *testing.T) {
	long := strings.Repeat("a", 600)
	for _, ref := range []v1alpha1.ConfigMapReference{
		{Namespace: long, Name: "b", UID: "c"}, {Namespace: "a", Name: long, UID: "c"}, {Namespace: "a", Name: "b", UID: types.UID(long)},
	} {
		if kind, cause := validate(&v1alpha1.NodeConfigSource{ConfigMapRef: &ref}); kind != trial.Invalid || len(cause) > 700 {
			t.Errorf("%+v: got %v, %q", ref, kind, cause)
		}
	}
}

// An older CRD may accept what the present one refuses.
func TestSpecAcceptedByOlderCRDIsInvalid(t *testing.T) {
	raw, err := os.ReadFile(crdFile)
	if err != nil {
		t.Fatal(err)
	}
	var crd map[string]any
	if err := yaml.Unmarshal(raw, &crd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { replaceCRD(t, crd) })
	var older map[string]any
	if err := yaml.Unmarshal(raw, &older); err != nil {
		t.Fatal(err)
	}
	version := older["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	schema := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
	loosen(schema["properties"].(map[string]any)["spec"])
	replaceCRD(t, older)

	node := newName("node")
	s := startSource(t, newClient(t, nodeKubeconfig(t, node)), node, &disk{})
	awaitAnswer(t, s, "its NodeConfig", kind(trial.Unassigned))
	for _, c := range sources {
		if c.kind != trial.Invalid {
			continue
		}
		_ = await(t, "the older CRD to be in force for "+c.name, func() error {
			_, err := admin.do(t.Context(), request{verb: "PATCH", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", name: node,
				contentType: "application/json-patch+json", body: []map[string]any{{"op": "add", "path": "/spec", "value": map[string]any{"configSource": json.RawMessage(c.source)}}}}, nil)
			return err
		}, func(err error) bool { return err == nil })
		awaitAnswer(t, s, c.name, func(a Answer) bool { return a.Kind == trial.Invalid && a.Cause == c.cause })
	}
	deleteNodeConfig(t, node)
}

// loosen removes every rule from a schema.
func loosen(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, rule := range []string{"x-kubernetes-validations", "required", "maxLength", "pattern"} {
			if _, isField := v[rule].(map[string]any); !isField {
				delete(v, rule)
			}
		}
		for _, inner := range v {
			loosen(inner)
		}
	case []any:
		for _, inner := range v {
			loosen(inner)
		}
	}
}

func replaceCRD(t *testing.T, crd map[string]any) {
	t.Helper()
	r := request{verb: "PATCH", gv: crdV1, resource: "customresourcedefinitions", name: "nodeconfigs.evenkeel.dev",
		contentType: "application/json-patch+json", body: []map[string]any{{"op": "replace", "path": "/spec", "value": crd["spec"]}}}
	// A test's own context has ended when it is cleaned up.
	if _, err := admin.do(context.Background(), r, nil); err != nil {
		t.Fatal(err)
	}
}
