// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

const (
	applyAPI = "kubectl apply -k config/api"
	applyAll = "kubectl apply -f install.yaml"
)

// nameOf returns the kind and the name of an object.
func nameOf(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}

	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

// without says what does not work while a part is missing or differs.
func without(p *Part) string {
	kind, name := p.Want.GetKind(), p.Want.GetName()
	switch {
	case kind == "CustomResourceDefinition":
		return "the API server does not support the objects that this build reads and writes"
	case strings.HasPrefix(kind, "ValidatingAdmissionPolicy") && name == "evenkeel-node":
		return "a node could write the objects of another node"
	case strings.HasPrefix(kind, "ValidatingAdmissionPolicy") && (name == "evenkeel-record" || name == "evenkeel-event"):
		return "nodes and users could write what only the controller and a node's own agent may say"
	case strings.HasPrefix(kind, "ValidatingAdmissionPolicy"):
		return "the API server accepts invalid rollouts"
	case kind == "Namespace":
		return "revisions and the controller have no namespace"
	case name == "evenkeel-node":
		return "agents cannot read their assignments or report their status"
	case p.Of == "people":
		return "it cannot be bound to users"
	case kind == "FlowSchema":
		return "under load, the API server does not prioritize the controller's requests"
	}

	return "the controller lacks a permission that it needs"
}

// api compares the CRDs, the admission policies and the roles of nodes and
// people.
func api(f *Facts) []Finding {
	return append(ofParts(f, "api", applyAPI), ofParts(f, "people", applyAPI)...)
}

// controllerRights compares the roles of the controller, if the cluster needs
// one.
func controllerRights(f *Facts) []Finding {
	needed := f.Lease.Found || len(f.Rollouts) > 0 ||
		slices.ContainsFunc(f.Parts, func(p Part) bool { return p.Of == "controller" && p.Got != nil })
	if !needed {
		return nil
	}

	return ofParts(f, "controller", applyAll)
}

func ofParts(f *Facts, of, do string) []Finding {
	var out []Finding
	for i := range f.Parts {
		p := &f.Parts[i]
		if p.Of != of || p.Denied {
			continue
		}

		severity := Error
		switch {
		case of == "people":
			severity = Note
		case p.Want.GetKind() == "FlowSchema":
			severity = Warning
		}

		say := func(severity Severity, format string, args ...any) {
			out = append(out, Finding{Severity: severity, Object: nameOf(p.Want), Wrong: fmt.Sprintf(format, args...), Do: do})
		}
		switch {
		case p.Unserved:
			out = append(out, Finding{Severity: severity, Object: nameOf(p.Want), Do: "upgrade Kubernetes",
				Wrong: fmt.Sprintf("the API server does not know %s: %s", p.Want.GetAPIVersion(), without(p))})
		case p.Got == nil:
			say(severity, "is missing: %s", without(p))
			out[len(out)-1].missing = nameOf(p.Want)
		default:
			lacks, more := compare(p.Want, p.Got)
			if len(lacks) > 0 {
				say(severity, "%s: %s", firstFew(lacks), without(p))
			} else if len(more) > 0 {
				out = append(out, Finding{Severity: Note, Object: nameOf(p.Want),
					Wrong: "is newer than this kubectl-evenkeel, which does not know " + firstFew(more), Do: "upgrade kubectl-evenkeel"})
			}
		}
	}

	return out
}

// firstFew joins the first three differences.
func firstFew(words []string) string { return printable.First(words, 3, "; ") }

// compare returns what an object lacks, and the fields that only its CRD in the
// cluster has.
func compare(want, got *unstructured.Unstructured) (lacks, more []string) {
	switch want.GetKind() {
	case "CustomResourceDefinition":
		return compareCRDs(want.Object, got.Object)
	case "ClusterRole", "Role":
		return compareRules(rulesOf(want), rulesOf(got)), nil
	case "ClusterRoleBinding", "RoleBinding":
		return compareBindings(want, got), nil
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "FlowSchema":
		if path := differs("spec", want.Object["spec"], got.Object["spec"]); path != "" {
			return []string{"its " + path + " is not what this build expects"}, nil
		}
	}

	return nil, nil
}

// differs returns the path of the first field of want that got lacks or has
// with another value; empty: none. It ignores fields that only got has, but
// lists must be equal.
func differs(path string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if d := differs(path+"."+key, want[key], got[key]); d != "" {
				return d
			}
		}

		return ""
	case []any:
		got, _ := got.([]any)
		if len(want) != len(got) {
			return path
		}

		for i := range want {
			if d := differs(fmt.Sprintf("%s[%d]", path, i), want[i], got[i]); d != "" {
				return d
			}
		}

		return ""
	case string: // kustomize, and so `kubectl apply -k`, breaks the lines of an expression differently
		if got, is := got.(string); is && slices.Equal(strings.Fields(want), strings.Fields(got)) {
			return ""
		}

		return path
	}

	if !reflect.DeepEqual(want, got) {
		return path
	}

	return ""
}

// compareCRDs compares the fields and the validation rules of two CRDs in this
// version of the API.
func compareCRDs(want, got map[string]any) (lacks, more []string) {
	wants, _ := schemaOf(want)
	has, served := schemaOf(got)
	if !served {
		return []string{"does not serve " + v1alpha1.GroupVersion.Version}, nil
	}

	for _, path := range missing(wants, has) {
		if field, rule, isRule := strings.Cut(path, "!"); isRule {
			lacks = append(lacks, fmt.Sprintf("is older than this build: it lacks the rule %q of %s", rule, cmp.Or(field, "the object")))
		} else {
			lacks = append(lacks, "is older than this build: it lacks "+path)
		}
	}

	for _, path := range missing(has, wants) {
		if !strings.Contains(path, "!") {
			more = append(more, path)
		}
	}

	return lacks, more
}

// missing returns the paths of a schema that another one lacks. Of what is
// below a missing path it returns nothing.
func missing(wants, has map[string]bool) []string {
	var out []string
	for _, path := range slices.Sorted(maps.Keys(wants)) {
		parent := path[:max(0, strings.LastIndexAny(path, ".!"))]
		if !has[path] && (parent == "" || has[parent]) {
			out = append(out, path)
		}
	}

	return out
}

// CRDName is the name of the CustomResourceDefinition of NodeConfigs.
const CRDName = "nodeconfigs." + v1alpha1.GroupName

// CheckCRD returns an error if the cluster's CRD of NodeConfigs lacks fields
// that this program knows: the API server would drop them from the agents'
// reports.
func CheckCRD(ctx context.Context, c client.Reader) error {
	parts, err := Manifests()
	if err != nil {
		return err
	}

	i := slices.IndexFunc(parts, func(p Part) bool { return p.Want.GetName() == CRDName })
	want, got := parts[i].Want, &unstructured.Unstructured{}
	got.SetGroupVersionKind(want.GroupVersionKind())
	const first = "apply evenkeel's manifests first: " + applyAll
	switch err := c.Get(ctx, client.ObjectKeyFromObject(want), got); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the cluster has no CustomResourceDefinition %s, so agents cannot report: %s", CRDName, first)
	case err != nil:
		return fmt.Errorf("read the CustomResourceDefinition %s: %w", CRDName, err)
	}

	wants, _ := schemaOf(want.Object)
	has, served := schemaOf(got.Object)
	lacks := slices.DeleteFunc(missing(wants, has), func(path string) bool { return strings.Contains(path, "!") })
	switch {
	case !served:
		return fmt.Errorf("the CustomResourceDefinition %s does not serve %s: %s", CRDName, v1alpha1.GroupVersion.Version, first)
	case len(lacks) > 0:
		return fmt.Errorf("the CustomResourceDefinition %s is older than this program, and lacks %s: %s", CRDName, printable.Few(lacks), first)
	}

	return nil
}

// schemaOf returns the paths of all fields of a CRD, and their validation rules
// as PATH!RULE. served reports whether this version of the API is served.
func schemaOf(crd map[string]any) (out map[string]bool, served bool) {
	out = map[string]bool{}
	versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
	for _, v := range versions {
		v, _ := v.(map[string]any)
		if v["name"] != v1alpha1.GroupVersion.Version {
			continue
		}

		served, _ = v["served"].(bool)
		schema, _, _ := unstructured.NestedMap(v, "schema", "openAPIV3Schema")
		paths(schema, "", out)
	}

	return out, served
}

func paths(schema map[string]any, path string, out map[string]bool) {
	rules, _ := schema["x-kubernetes-validations"].([]any)
	for _, r := range rules {
		if r, ok := r.(map[string]any); ok {
			out[fmt.Sprintf("%s!%s", path, strings.Join(strings.Fields(fmt.Sprint(r["rule"])), " "))] = true
		}
	}

	properties, _ := schema["properties"].(map[string]any)
	for name, p := range properties {
		below := strings.TrimPrefix(path+"."+name, ".")
		out[below] = true
		if p, ok := p.(map[string]any); ok {
			paths(p, below, out)
		}
	}

	for _, key := range []string{"items", "additionalProperties"} {
		if p, ok := schema[key].(map[string]any); ok {
			paths(p, path, out)
		}
	}
}

func rulesOf(o *unstructured.Unstructured) []rbacv1.PolicyRule {
	role := &rbacv1.ClusterRole{} // a Role has its rules in the same place
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
		return nil
	}

	return role.Rules
}

// compareRules returns the permissions that are missing, one text for each
// resource.
func compareRules(want, got []rbacv1.PolicyRule) []string {
	_, uncovered := validation.Covers(got, want) // with one verb and one resource each
	verbs := map[string][]string{}
	var resources, lacks []string
	for _, r := range uncovered {
		of := strings.TrimSuffix(strings.Join(slices.Concat(r.Resources, r.APIGroups, r.NonResourceURLs), "."), ".")
		if verbs[of] == nil {
			resources = append(resources, of)
		}
		if !slices.Contains(verbs[of], r.Verbs[0]) { // with several names
			verbs[of] = append(verbs[of], r.Verbs[0])
		}
	}

	for _, of := range resources {
		lacks = append(lacks, fmt.Sprintf("does not grant %s on %s", strings.Join(verbs[of], ", "), of))
	}

	return lacks
}

// compareBindings returns how a binding differs, and the subjects that it
// lacks.
func compareBindings(want, got *unstructured.Unstructured) []string {
	var lacks []string
	if path := differs("roleRef", want.Object["roleRef"], got.Object["roleRef"]); path != "" {
		lacks = append(lacks, "its "+path+" differs; delete the binding first")
	}

	wants, _, _ := unstructured.NestedSlice(want.Object, "subjects")
	has, _, _ := unstructured.NestedSlice(got.Object, "subjects")
	for _, w := range wants {
		if !slices.ContainsFunc(has, func(g any) bool { return differs("", w, g) == "" }) {
			subject, _ := w.(map[string]any)
			lacks = append(lacks, fmt.Sprintf("does not bind %v %v", subject["kind"], subject["name"]))
		}
	}

	return lacks
}
