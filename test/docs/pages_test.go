// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/hollow"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// setups make what a page takes for granted. Every other page gets a cluster
// with evenkeel installed.
var setups = map[string]func(*world) error{
	"README.md":                 readme,
	"docs/cli.md":               commandLine,
	"docs/component-configs.md": componentConfigs,
	"docs/components.md":        binaries,
	"docs/contributing.md":      noSetup,
	"docs/getting-started.md":   gettingStarted,
	"docs/gitops.md":            gitops,
	"docs/install.md":           install,
	"docs/kubelets.md":          kubelets,
	"docs/metrics.md":           prometheusOperator,
	"docs/operating.md":         operating,
	"docs/payload.md":           payloads,
	"docs/rehearsal.md":         rehearsalPage,
	"docs/releases.md":          releases,
	"docs/rollouts.md":          rollouts,
	"docs/scale.md":             noSetup,
	"docs/security.md":          withWorker,
	"docs/self-hosted.md":       withWorker,
	"docs/sources.md":           sources,
	"docs/survey.md":            noSetup,
	"docs/troubleshooting.md":   troubleshooting,
}

// atOnce is how many pages are tested at the same time. Pages mostly wait for
// trials.
const atOnce = 4

func TestTheCommandsOfThePagesDoWhatThePagesSay(t *testing.T) {
	files := assert.Value(filepath.Glob(filepath.Join(root, "docs", "*.md")))(t)
	pages := []string{"README.md"}
	for _, file := range files {
		pages = append(pages, "docs/"+filepath.Base(file))
	}

	for page := range setups {
		assert.That(t, slices.Contains(pages, page), "there is no page %s to set up", page)
	}

	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, page := range pages {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			t.Run(filepath.Base(page), func(t *testing.T) { testPage(t, page) })
		})
	}

	all.Wait()
}

func testPage(t *testing.T, page string) {
	text := assert.Value(os.ReadFile(filepath.Join(root, page)))(t)
	commands := assert.Value(Parse(string(text)))(t, page)
	if len(commands) == 0 {
		return
	}

	w := newWorld(t)
	setup := setups[page]
	if setup == nil {
		setup = installed
	}
	if err := setup(w); err != nil {
		t.Fatal(errors.Join(err, w.session.Close()))
	}

	w.executePage(page, commands)
}

const (
	morePods = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 120\n"
	// ownFile is a kubelet's own configuration, on any host.
	ownFile = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 110\nfailCgroupV1: false\nauthentication: {anonymous: {enabled: false}}\n"
)

func noSetup(*world) error { return nil }

// installed has a cluster with evenkeel.
func installed(w *world) error {
	if err := w.startCluster(); err != nil {
		return err
	}

	return w.run("kubectl apply -k config/base && kubectl wait --for=condition=Established crd --all")
}

// withWorker has evenkeel installed, and a hollow worker-1.
func withWorker(w *world) error { return errors.Join(installed(w), w.hollowNode("worker")) }

// hidePrograms takes evenkeel's programs off the PATH: the page puts them
// there.
func (w *world) hidePrograms() error { return w.run(`PATH=${PATH#*:}`) }

// readme has what the page's one change needs: a node, a pool and a drop-in.
func readme(w *world) error {
	return errors.Join(installed(w), w.hollowNode("node"), w.controller(), w.write("more-pods.yaml", morePods),
		w.hollowNodes(hollow.Options{Prefix: "worker-", Nodes: 6, Labels: pool, Limits: trialOf(time.Second)}))
}

// gettingStarted has an empty cluster, in which the page installs evenkeel.
func gettingStarted(w *world) error {
	w.instead["kubectl evenkeel install node-1"] = func(context.Context) error { return errors.Join(w.hollowNode("node"), w.controller()) }
	w.instead["kubectl evenkeel install --selector"] = func(context.Context) error {
		return w.hollowNodes(hollow.Options{Prefix: "worker-", Nodes: 6, Labels: pool, Limits: trialOf(time.Second)})
	}

	return errors.Join(w.startCluster(), w.run("kubectl kustomize config/base >install.yaml"), w.hidePrograms())
}

func commandLine(w *world) error {
	if err := errors.Join(installed(w), w.hollowNode("node"), w.controller(), w.hidePrograms()); err != nil {
		return err
	}

	kubeadm := "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n---\n" + ownFile +
		"---\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: magic\n"

	return errors.Join(w.write("more-pods.yaml", morePods), w.write("kubelet.yaml", morePods), w.write("kubeadm.yaml", kubeadm),
		w.linkTool("kube-proxy", "kube-proxy"), w.writeScript("smoke-test.sh", "#!/bin/sh\n"),
		w.hollowNodes(hollow.Options{Nodes: 50, Zones: 3, Labels: pool, Limits: trialOf(time.Second)}))
}

// binaries has programs of the version to upgrade to, and files for them to
// judge.
func binaries(w *world) error {
	return errors.Join(w.linkTool("kubelet", "kubelet-v1.37.2"), w.linkTool("kube-proxy", "kube-proxy-v1.37.2"), w.write("kubelet.yaml", ownFile),
		w.write("config.conf", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmodus: iptables\n"))
}

// kubeadm has the real kubeadm make its ConfigMaps of a cluster of this
// version.
func (w *world) kubeadm(version string) error {
	settings := "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: " + version + "\ncontrolPlaneEndpoint: 192.0.2.10:6443\n"
	return w.cluster.Kubeadm(w.t.Context(), localcluster.KubeadmConfig("192.0.2.10", settings),
		"init phase upload-config all", "init phase addon kube-proxy", "init phase addon coredns")
}

// componentConfigs has a cluster of kubeadm's, whose kubelet configuration
// somebody has edited.
func componentConfigs(w *world) (err error) {
	defer must.Catch(&err)

	must.OK(errors.Join(installed(w), w.kubeadm("v1.36.3"), w.linkTool("kubelet", "kubelet"), w.linkTool("kube-proxy", "kube-proxy")))
	maps := w.kube.CoreV1().ConfigMaps("kube-system")
	config := must.Get(maps.Get(w.t.Context(), "kubelet-config", metav1.GetOptions{}))
	config.Data["kubelet"] += "dynamicConfigDir: /var/lib/dynamic\nfeatureGates:\n  DynamicKubeletConfig: true\n"
	_, err = maps.Update(w.t.Context(), config, metav1.UpdateOptions{})

	return errors.Join(err, w.setEditor("/dynamicConfigDir/d; /featureGates/d; /DynamicKubeletConfig/d"),
		w.hollowNodes(hollow.Options{Prefix: "worker-", Nodes: 3, Labels: pool, Limits: trialOf(time.Second)}))
}

// setEditor sets the reader's editor to a sed script.
func (w *world) setEditor(script string) error {
	return errors.Join(w.writeScript("editor", "#!/bin/sh\nexec sed -i '"+script+"' \"$@\"\n"), w.run("export EDITOR=$HOME/editor"))
}

func install(w *world) error {
	helm := exec.Command("go", "build", "-C", root+"/tools/helm", "-trimpath", "-o", filepath.Join(w.workdir, "bin", "helm"), "helm.sh/helm/v3/cmd/helm")
	helm.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := helm.CombinedOutput(); err != nil {
		return fmt.Errorf("build helm: %w: %s", err, out)
	}

	w.instead["kubectl apply -f https://"] = func(context.Context) error { return w.run("kubectl apply -f install.yaml") }
	w.instead["kubectl evenkeel install worker-1"] = func(context.Context) error { return w.hollowNode("worker") }

	return errors.Join(w.startCluster(), w.run("kubectl kustomize config/base >install.yaml"))
}

func kubelets(w *world) error {
	if err := errors.Join(binaries(w), installed(w), w.kubeadm("v1.37.2")); err != nil {
		return err
	}

	_, err := w.realNode()

	return errors.Join(err, w.write("empty.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"),
		w.write("kubelet.yaml", ownFile+"featureGates: {MemoryManager: true}\n"))
}

// prometheusOperator has the kinds of the Prometheus Operator, as far as an API
// server needs them to take such objects.
func prometheusOperator(w *world) (err error) {
	defer must.Catch(&err)

	must.OK(installed(w))
	for _, kind := range []string{"PrometheusRule", "PodMonitor"} {
		name := strings.ToLower(kind)
		crd := fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[1]ss.monitoring.coreos.com},
  spec: {group: monitoring.coreos.com, scope: Namespaced, names: {kind: %[2]s, plural: %[1]ss, singular: %[1]s}, versions: [{name: v1, served: true, storage: true,
  schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`, name, kind)
		must.OK(errors.Join(w.write(name+".yaml", crd), w.run("kubectl apply -f "+name+".yaml && kubectl wait --for=condition=Established crd/"+name+"s.monitoring.coreos.com")))
	}

	return nil
}

// operating has a real node with an agent, to which a person has assigned the
// local configuration.
func operating(w *world) (err error) {
	defer must.Catch(&err)

	must.OK(installed(w))
	agent := must.Get(w.realNode())
	own, err := os.ReadFile(filepath.Join(filepath.Dir(agent.Dir), "kubelet.yaml"))
	open := strings.Replace(string(own), "enabled: false", "enabled: true", 1)
	must.OK(errors.Join(err, w.startAgent(agent), w.write("typo.yaml", strings.Replace(morePods, "maxPods", "maxPodz", 1)), w.write("kubelet.yaml", open)))
	_, err = w.kube.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath("/apis/evenkeel.dev/v1alpha1/nodeconfigs/node-1").
		Body([]byte(`{"spec": {"configSource": {"local": {}}}}`)).Do(w.t.Context()).Raw()

	return err
}

// payloads has the ConfigMaps that the page shows.
func payloads(w *world) error {
	return errors.Join(installed(w), w.write("more-pods.yaml", morePods), w.applyYAML("docs/payload.md", "kind: ConfigMap"))
}

// applyYAML applies those YAML blocks of a page that contain words.
func (w *world) applyYAML(page, words string) (err error) {
	defer must.Catch(&err)

	text := must.Get(os.ReadFile(filepath.Join(root, page)))
	for i, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(block, words) {
			continue
		}

		name := fmt.Sprintf("%s-%d.yaml", filepath.Base(page), i)
		must.OK(errors.Join(w.write(name, block), w.run("kubectl apply -f "+name)))
	}

	return nil
}

func rehearsalPage(w *world) error {
	return errors.Join(installed(w), w.controller(), w.write("good.yaml", morePods), w.write("bad.yaml", strings.Replace(morePods, "120", "7", 1)))
}

// releases has what is released, as far as the page asks for it, and a cluster
// with two versions of the agent.
func releases(w *world) error {
	if err := errors.Join(w.startCluster(), w.run("kubectl apply -k config/base && kubectl wait --for=condition=Established crd --all"), w.controller()); err != nil {
		return err
	}

	w.instead["git checkout"] = func(context.Context) error {
		return w.run("mkdir -p dist/v0.1.0 the-published && cp SHA256SUMS dist/v0.1.0/ && cp SHA256SUMS the-published/")
	}
	w.instead["make release COSIGN_KEY"] = func(context.Context) error {
		return w.run("openssl dgst -sha256 -sign ~/cosign.key install.yaml | base64 -w 0 >install.yaml.sig")
	}
	const release = `ln -s bin/evenkeel-agent evenkeel-agent-v0.1.0-linux-amd64 && kubectl kustomize config/base >install.yaml &&
		sha256sum evenkeel-*-v0.1.0* install.yaml >SHA256SUMS`

	return errors.Join(w.run(release), w.hollowNodes(hollow.Options{Prefix: "worker-", Nodes: 4}),
		w.hollowNodes(hollow.Options{Prefix: "old-", Nodes: 1, Version: "v0.0.9"}))
}

func rollouts(w *world) error {
	return errors.Join(installed(w), w.controller(), w.applyYAML("docs/rollouts.md", "kind: NodeConfigRollout"))
}

// gitops has a rollout with an earlier revision.
func gitops(w *world) error {
	return errors.Join(installed(w), w.controller(), w.write("more-pods.yaml", morePods),
		w.hollowNodes(hollow.Options{Prefix: "worker-", Nodes: 2, Labels: pool, Limits: trialOf(time.Second)}),
		w.run("kubectl evenkeel push workers -f more-pods.yaml --drop-in --selector node-restriction.kubernetes.io/pool=workers --yes"),
		w.run("kubectl evenkeel rollout status workers -w"),
		w.run("sed -i 's/120/121/' more-pods.yaml && kubectl evenkeel push workers -f more-pods.yaml --drop-in --yes"))
}

func sources(w *world) error {
	return errors.Join(withWorker(w), w.write("more-pods.yaml", morePods), w.setEditor("s/maxPods: 120/maxPods: 130/"))
}

// troubleshooting has a rollout, and the paths of worker-1.
func troubleshooting(w *world) error {
	dir := w.t.TempDir()
	if err := errors.Join(w.mountNode(filepath.Join(dir, "worker-1"), ownFile), installed(w), w.controller(), w.write("more-pods.yaml", morePods)); err != nil {
		return err
	}

	return errors.Join(w.hollowNodes(hollow.Options{Prefix: "worker-", Nodes: 2, Labels: pool, Limits: trialOf(time.Second), Dir: dir}),
		w.run("kubectl evenkeel push workers -f more-pods.yaml --drop-in --selector node-restriction.kubernetes.io/pool=workers --yes"))
}
