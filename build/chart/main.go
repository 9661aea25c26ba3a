// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command chart generates the Helm chart's templates (charts/evenkeel) from the
// manifests in config, so that kustomize and Helm install the same objects.
//
// It must not know what the manifests are for, only which parts of them are
// values.
package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// value is a part of a manifest that a value of the chart replaces. It occurs
// once in the manifest.
type value struct{ from, to string }

// template is a template of the chart, generated from a manifest.
type template struct {
	file   string // the path in the chart's templates, and of the manifest below config/
	source string
	when   string // its condition; empty means always
	values []value
}

// keep makes Helm keep an object when the release is uninstalled, because
// users' objects would be deleted with it.
const keep = "    helm.sh/resource-policy: keep\n"

// noRelease is the error of a chart of a clone, which has no appVersion.
const noRelease = "no registry serves images of a clone: run make install.yaml, and set image.registry and image.tag as in its output; see docs/install.md"

func image(name string) []value {
	return []value{
		{"image: evenkeel.dev/" + name + ":latest", "image: {{ printf \"%s/" + name + ":%s\" .Values.image.registry (.Values.image.tag | default .Chart.AppVersion | required \"" +
			noRelease + "\") | quote }}"},
		{"imagePullPolicy: IfNotPresent", "imagePullPolicy: {{ .Values.image.pullPolicy }}"},
	}
}

func secrets(account string) value {
	line := "      serviceAccountName: " + account + "\n"
	return value{line, line + "      {{- with .Values.image.pullSecrets }}\n      imagePullSecrets: {{ toJson . }}\n      {{- end }}\n"}
}

func resources(of, block string) value {
	return value{"        resources:\n" + block, "        resources: {{ toJson .Values." + of + ".resources }}\n"}
}

const controlPlane = "      - key: node-role.kubernetes.io/control-plane\n        operator: Exists\n        effect: NoSchedule\n"

const small = "          requests:\n            cpu: 10m\n            memory: 32Mi\n"

var templates = []template{
	{file: "namespace.yaml", source: "api/namespace.yaml", when: `ne .Release.Namespace "evenkeel-system"`, values: []value{
		{"  name: evenkeel-system\n", "  name: evenkeel-system\n  annotations:\n" + keep},
	}},
	{file: "crd-nodeconfigs.yaml", source: "api/crd/evenkeel.dev_nodeconfigs.yaml", when: ".Values.crds.enabled", values: []value{{"  annotations:\n", "  annotations:\n" + keep}}},
	{file: "crd-nodeconfigpreflights.yaml", source: "api/crd/evenkeel.dev_nodeconfigpreflights.yaml", when: ".Values.crds.enabled", values: []value{{"  annotations:\n", "  annotations:\n" + keep}}},
	{file: "crd-nodeconfigrollouts.yaml", source: "api/crd/evenkeel.dev_nodeconfigrollouts.yaml", when: ".Values.crds.enabled", values: []value{{"  annotations:\n", "  annotations:\n" + keep}}},
	{file: "node-rbac.yaml", source: "api/node-rbac.yaml"},
	{file: "node-admission.yaml", source: "api/node-admission.yaml"},
	{file: "people-rbac.yaml", source: "api/people-rbac.yaml"},
	{file: "rollout-admission.yaml", source: "api/rollout-admission.yaml"},
	{file: "revision-admission.yaml", source: "api/revision-admission.yaml"},
	{file: "preflight-admission.yaml", source: "api/preflight-admission.yaml"},
	{file: "record-admission.yaml", source: "api/record-admission.yaml"},
	{file: "event-admission.yaml", source: "api/event-admission.yaml"},
	{file: "controller-rbac.yaml", source: "controller/rbac.yaml"},
	{file: "controller-flowschema.yaml", source: "controller/flowschema.yaml"},
	{file: "controller-networkpolicy.yaml", source: "controller/networkpolicy.yaml"},
	{file: "controller-node-taints.yaml", source: "controller/node-taints.yaml", values: []value{
		{"expression: \"'evenkeel.dev/unconfigured'\"", "expression: \"'{{ .Values.startupTaint.key }}'\""},
	}},
	{file: "controller-start-probe.yaml", source: "controller/start-probe.yaml"},
	{file: "controller-deployment.yaml", source: "controller/deployment.yaml", values: slices.Concat(image("controller"), []value{
		secrets("evenkeel-controller"),
		{"  replicas: 2\n", "  replicas: {{ .Values.controller.replicas }}\n"},
		{"        - --log-format=json\n", "        - --log-format=json\n        {{- if ne .Values.startupTaint.key \"evenkeel.dev/unconfigured\" }}\n        - --startup-taint={{ .Values.startupTaint.key }}\n        {{- end }}\n        {{- range .Values.controller.args }}\n        - {{ quote . }}\n        {{- end }}\n"},
		{"      affinity:\n", "      {{- with .Values.controller.nodeSelector }}\n      nodeSelector: {{ toJson . }}\n      {{- end }}\n      affinity:\n"},
		{controlPlane, controlPlane + "      {{- range .Values.controller.tolerations }}\n      - {{ toJson . }}\n      {{- end }}\n"},
		resources("controller", "          requests:\n            cpu: 50m\n            memory: 128Mi\n          limits:\n            memory: 320Mi\n"),
	})},
	{file: "drain-rbac.yaml", source: "drain/rbac.yaml", when: ".Values.drain.enabled"},
	{file: "drift-rbac.yaml", source: "drift/rbac.yaml", when: ".Values.drift.enabled"},
	{file: "startup-taint-rbac.yaml", source: "startup-taint/rbac.yaml", when: ".Values.startupTaint.enabled"},
	{file: "installer-namespace.yaml", source: "installer/namespace.yaml", when: ".Values.installer.enabled"},
	{file: "installer-people-rbac.yaml", source: "installer/people-rbac.yaml", when: ".Values.installer.enabled"},
	{file: "installer-start-probe-rbac.yaml", source: "installer/start-probe-rbac.yaml", when: ".Values.installer.enabled"},
	{file: "installer.yaml", source: "installer/installer.yaml", when: ".Values.installer.enabled", values: slices.Concat(image("agent"), []value{
		secrets("evenkeel-installer"), resources("installer", small),
		{"        # [\"--\", \"--config-trial-duration=20m\"].\n", "        # [\"--\", \"--config-trial-duration=20m\"].\n        {{- with .Values.installer.agentFlags }}\n        args: {{ toJson (prepend . \"--\") }}\n        {{- end }}\n"},
	})},
	{file: "uninstaller.yaml", source: "installer/uninstaller.yaml", when: ".Values.installer.enabled", values: slices.Concat(image("agent"), []value{
		secrets("evenkeel-installer"), resources("installer", small),
	})},
}

// render returns the templates by name. The error names the manifest that has
// changed.
func render(config string) (_ map[string]string, err error) {
	defer must.Catch(&err)

	made := map[string]string{}
	for _, t := range templates {
		text := string(must.Get(os.ReadFile(filepath.Join(config, t.source))))
		must.That(!strings.Contains(text, "{{"), "%s contains {{", t.source)
		for _, v := range t.values {
			n := strings.Count(text, v.from)
			must.That(n == 1, "%s contains %q %d times, want once: it becomes a value", t.source, v.from, n)
			text = strings.Replace(text, v.from, v.to, 1)
		}

		if !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		if t.when != "" {
			text = "{{- if " + t.when + " }}\n" + text + "{{- end }}\n"
		}

		made[t.file] = "{{- /* Generated from config/" + t.source + " by make generate */}}\n" + text
	}

	return made, nil
}

func main() {
	os.Exit(must.ExitCode("chart", func() {
		for name, text := range must.Get(render("config")) {
			must.OK(os.WriteFile(filepath.Join("charts/evenkeel/templates", name), []byte(text), 0o644))
		}
	}))
}
