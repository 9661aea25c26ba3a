// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/jsonpath"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

const (
	root  = "../.."
	chart = root + "/charts/evenkeel"
)

// helm is the real one, built from tools/helm.
var helm string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "evk-chart-")
	if err == nil {
		helm = filepath.Join(dir, "helm")
		build := exec.Command("go", "build", "-C", root+"/tools/helm", "-trimpath", "-o", helm, "helm.sh/helm/v3/cmd/helm")
		build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
		err = build.Run()
	}

	code := 1
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, "build helm:", err)
	}

	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// run runs a program with no configuration of the user's.
func run(t *testing.T, kubeconfig, program string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "HOME="+home, "KUBECONFIG="+kubeconfig)
	for _, name := range []string{"CACHE", "CONFIG", "DATA"} {
		cmd.Env = append(cmd.Env, "HELM_"+name+"_HOME="+home)
	}

	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()

	return out.String(), errOut.String(), err
}

// says runs a program that must succeed, and returns its output.
func says(t *testing.T, kubeconfig, program string, args ...string) string {
	t.Helper()
	out, said, err := run(t, kubeconfig, program, args...)
	assert.Must(t, err == nil, "%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, said)
	return out
}

// rendered are the objects that helm makes of the chart, by kind and name.
func rendered(t *testing.T, args ...string) map[string]map[string]any {
	t.Helper()
	args = append([]string{"template", "evenkeel", chart, "--kube-version=v1.36.0", "--set=image.tag=latest"}, args...)
	return objects(t, says(t, os.DevNull, helm, args...))
}

func TestTheChartOfACloneNamesNoImagesThatNobodyServes(t *testing.T) {
	_, said, err := run(t, os.DevNull, helm, "template", "evenkeel", chart, "--kube-version=v1.36.0")
	assert.That(t, err != nil && strings.Contains(said, noRelease), "%v, %s", err, said)
}

func objects(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); err != nil {
			break
		}
		if len(o.Object) == 0 {
			continue
		}

		key := fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
		_, ok := all[key]
		assert.That(t, !ok, "%s is there twice", key)
		annotations := o.GetAnnotations()
		if annotations["helm.sh/resource-policy"] == "keep" {
			unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "helm.sh/resource-policy")
			if len(annotations) == 1 {
				o.SetAnnotations(nil)
			}
		}

		all[key] = unfolded(o.Object).(map[string]any)
	}

	return all
}

// unfolded is a value whose texts have one space for each run of white space
// with a line's end in it: of a folded text that has lines kustomize makes one
// with more of them, and white space is nothing in expressions.
func unfolded(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = unfolded(v[key])
		}
	case []any:
		for i := range v {
			v[i] = unfolded(v[i])
		}
	case string:
		return strings.TrimSpace(lineEnds.ReplaceAllString(v, " "))
	}

	return v
}

var lineEnds = regexp.MustCompile(`\s*\n\s*`)

func TestTheChartIsGeneratedFromTheManifests(t *testing.T) {
	made := assert.Value(render(root + "/config"))(t)
	entries := assert.Value(os.ReadDir(chart + "/templates"))(t)
	for _, e := range entries {
		if _, ok := made[e.Name()]; !ok && e.Name() != "NOTES.txt" {
			t.Errorf("templates/%s is made of no manifest", e.Name())
		}
	}

	for name, want := range made {
		got, err := os.ReadFile(filepath.Join(chart, "templates", name))
		diff := cmp.Diff(want, string(got))
		assert.That(t, err == nil && diff == "", "templates/%s is not what make generate makes (- made, + there): %v\n%s", name, err, diff)
	}
}

func TestAChangedManifestWithoutItsValueIsNamed(t *testing.T) {
	dir := t.TempDir()
	assert.NoError(t, os.CopyFS(dir, os.DirFS(root+"/config")))
	file := filepath.Join(dir, "controller/deployment.yaml")
	raw := assert.Value(os.ReadFile(file))(t)
	for text, want := range map[string]string{
		strings.Replace(string(raw), "replicas: 2", "replicas: 3", 1): `controller/deployment.yaml contains "  replicas: 2\n" 0 times, want once: it becomes a value`,
		string(raw) + "# {{ }}\n":                                     "controller/deployment.yaml contains {{",
	} {
		assert.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		assert.Error(t, assert.Err(render(dir)), want)
	}
}

func TestHelmAndKustomizeRenderTheSameObjects(t *testing.T) {
	kustomized := func(dir string) map[string]map[string]any {
		return objects(t, says(t, os.DevNull, root+"/bin/tools/kubectl", "kustomize", root+"/config/"+dir))
	}
	for component, value := range map[string]string{
		"base": "drain.enabled=false", "drain": "drain.enabled=true", "drift": "drift.enabled=true", "startup-taint": "startupTaint.enabled=true",
	} {
		want := kustomized("base")
		assert.Must(t, len(want) >= 20, "kustomize makes only %d objects", len(want))
		maps.Copy(want, kustomized(component))
		assert.NoDiff(t, cmp.Diff(want, rendered(t, "--set", value)), component, "(- kustomize, + helm)")
	}
}

func TestHelmLintAcceptsTheChart(t *testing.T) {
	out := says(t, os.DevNull, helm, "lint", "--strict", chart)
	assert.That(t, strings.Contains(out, "0 chart(s) failed"), "%v", out)
}

// at is the field of an object at a JSON path, such as .spec.replicas.
func at(t *testing.T, o map[string]any, path string) any {
	t.Helper()
	p := jsonpath.New(path)
	assert.NoError(t, p.Parse("{"+path+"}"))
	found := assert.Value(p.FindResults(o))(t)

	return found[0][0].Interface()
}

func TestEachValueChangesItsObjects(t *testing.T) {
	const installer, uninstaller, controller = "DaemonSet evenkeel-install/evenkeel-installer", "DaemonSet evenkeel-install/evenkeel-uninstaller", "Deployment evenkeel-system/evenkeel-controller"
	const pod, container = ".spec.template.spec", ".spec.template.spec.containers[0]"
	all := rendered(t, "--set", "image.registry=r.example.com:5000/x,image.tag=v1,image.pullPolicy=Always,image.pullSecrets[0].name=s",
		"--set", "controller.replicas=1,controller.args={--a=1,--b},controller.resources.limits.memory=1Gi",
		"--set", "installer.agentFlags={--config-trial-duration=20m},installer.resources.requests.cpu=20m",
		"--set", "controller.nodeSelector.pool=system,controller.tolerations[0].key=dedicated,controller.tolerations[0].operator=Exists")
	for _, tt := range []struct {
		object, path string
		want         any
	}{
		{installer, container + ".image", "r.example.com:5000/x/agent:v1"},
		{uninstaller, container + ".image", "r.example.com:5000/x/agent:v1"},
		{controller, container + ".image", "r.example.com:5000/x/controller:v1"},
		{installer, container + ".imagePullPolicy", "Always"},
		{uninstaller, pod + ".imagePullSecrets", []any{map[string]any{"name": "s"}}},
		{controller, pod + ".imagePullSecrets", []any{map[string]any{"name": "s"}}},
		{controller, ".spec.replicas", float64(1)},
		{controller, container + ".args", []any{"--log-format=json", "--a=1", "--b"}},
		{controller, container + ".resources.limits.memory", "1Gi"},
		{controller, pod + ".nodeSelector", map[string]any{"pool": "system"}},
		{controller, pod + ".tolerations", []any{
			map[string]any{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}, map[string]any{"key": "dedicated", "operator": "Exists"},
		}},
		{installer, container + ".args", []any{"--", "--config-trial-duration=20m"}},
		{installer, container + ".resources.requests.cpu", "20m"},
	} {
		assert.NoDiff(t, cmp.Diff(tt.want, at(t, all[tt.object], tt.path)), tt.object, tt.path)
	}

	for key := range rendered(t, "--set", "installer.enabled=false,crds.enabled=false", "-n", "evenkeel-system") {
		if strings.HasPrefix(key, "CustomResourceDefinition") || strings.HasPrefix(key, "DaemonSet") || strings.Contains(key, "Namespace ") || strings.Contains(key, "evenkeel-install/") {
			t.Errorf("%s is there, without installer and CRDs, in a namespace that helm has made", key)
		}
	}
}

func TestTheKeyOfTheStartupTaintIsTheControllersAndThePolicys(t *testing.T) {
	for key, want := range map[string][]any{
		"evenkeel.dev/unconfigured": {"--log-format=json"}, "example.com/startup": {"--log-format=json", "--startup-taint=example.com/startup"},
	} {
		all := rendered(t, "--set", "startupTaint.key="+key)
		args := at(t, all["Deployment evenkeel-system/evenkeel-controller"], ".spec.template.spec.containers[0].args")
		assert.NoDiff(t, cmp.Diff(want, args), key, "(- want, + got)")
		variables, _ := at(t, all["ValidatingAdmissionPolicy /evenkeel-node-taints"], ".spec.variables").([]any)
		want := map[string]any{"name": "startupTaint", "expression": "'" + key + "'"}
		assert.That(t, slices.ContainsFunc(variables, func(v any) bool { return cmp.Equal(v, want) }), "the policy has no variable %v", want)
	}
}

func TestUnknownValuesAreRejected(t *testing.T) {
	for set, want := range map[string]string{
		"image.tga=v1":                   "tga",
		"namespace=mine":                 "namespace",
		"controller.replicas=two":        "replicas",
		"startupTaint.key=a'b":           "key",
		"installer.agentFlags={kubelet}": "agentFlags",
	} {
		_, said, err := run(t, os.DevNull, helm, "template", "evenkeel", chart, "--kube-version=v1.36.0", "--set=image.tag=v1", "--set", set)
		assert.That(t, err != nil && strings.Contains(said, want), "--set %s: %v, %q, want an error about %s", set, err, said, want)
	}
}

func TestTheChartIsInstalledUpgradedAndUninstalledOnARealCluster(t *testing.T) {
	c := localcluster.StartForTest(t, localcluster.Options{Manifests: localcluster.NoManifests})
	kubectl := func(args ...string) string { return says(t, c.AdminKubeconfig(), root+"/bin/tools/kubectl", args...) }
	says(t, c.AdminKubeconfig(), helm, "install", "evenkeel", chart, "-n", "kube-system", "--set=image.tag=v1", "--timeout", "1m")
	kubectl("wait", "--for=condition=Established", "crd/nodeconfigs.evenkeel.dev", "--timeout=30s")

	// The CRD of an older version, and the next one's.
	kubectl("patch", "crd", "nodeconfigs.evenkeel.dev", "--type=json", "-p",
		`[{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/runMode"}]`)
	const runMode = "jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.status.properties.runMode.type}"
	got := kubectl("get", "crd", "nodeconfigs.evenkeel.dev", "-o", runMode)
	assert.Must(t, got == "", "the older CRD has runMode: %s", got)
	says(t, c.AdminKubeconfig(), helm, "upgrade", "evenkeel", chart, "-n", "kube-system", "--reuse-values", "--set", "controller.replicas=1")
	got = kubectl("get", "crd", "nodeconfigs.evenkeel.dev", "-o", runMode)
	assert.That(t, got == "string", "after the upgrade the CRD has runMode %q, want a string", got)

	kubectl("create", "-f", writeFile(t, "apiVersion: evenkeel.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: a}\n"))
	says(t, c.AdminKubeconfig(), helm, "uninstall", "evenkeel", "-n", "kube-system")
	// All kinds are listed: a kube-apiserver 1.34 or later that deletes a CRD
	// whose watch cache is not filled can forget that for five minutes.
	got = kubectl("get", "nodeconfigs,nodeconfigrollouts,nodeconfigpreflights,namespaces", "-o", "name")
	assert.That(t, strings.Contains(got, "/a\n") && strings.Contains(got, "namespace/evenkeel-system\n"),
		"what people have written is gone with the release: %s", got)
	_, said, err := run(t, c.AdminKubeconfig(), root+"/bin/tools/kubectl", "-n", "evenkeel-system", "get", "deployment", "evenkeel-controller")
	assert.That(t, err != nil && strings.Contains(said, "not found"), "the controller is still there: %v, %s", err, said)
	// The last command that `kubectl evenkeel uninstall --purge` names: it has
	// deleted the CRDs, and what runs.
	file := filepath.Join(t.TempDir(), "install.yaml")
	kubectl("kustomize", root+"/config/base", "--output="+file)
	kubectl("delete", "crd", "--all")
	kubectl("delete", "--ignore-not-found", "--wait=false", "-f", file)
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	assert.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}
