// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
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
)

// setups make what a page takes for granted, step by step. Every other page
// gets a cluster with evenkeel installed.
var setups = map[string][]step{
	"README.md": {installed, node("node"), (*world).controller, write("more-pods.yaml", morePods), workers(6)},
	"docs/cli.md": {
		installed, node("node"), (*world).controller, hidePrograms, write("more-pods.yaml", morePods), write("kubelet.yaml", morePods),
		write("kubeadm.yaml", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n---\n"+ownFile+
			"---\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: magic\n"),
		tool("kube-proxy", "kube-proxy"), run("echo '#!/bin/sh' >smoke-test.sh && chmod +x smoke-test.sh"),
		fleet(hollow.Options{Nodes: 50, Zones: 3, Labels: pool, Limits: trialOf(time.Second)}),
	},
	"docs/component-configs.md": {
		installed, kubeadm("v1.36.3"), tool("kubelet", "kubelet"), tool("kube-proxy", "kube-proxy"), editedKubeletConfig,
		editor("/dynamicConfigDir/d; /featureGates/d; /DynamicKubeletConfig/d"), workers(3),
	},
	"docs/components.md":   {binaries},
	"docs/contributing.md": {},
	"docs/getting-started.md": {
		instead("kubectl evenkeel install node-1", node("node"), (*world).controller),
		instead("kubectl evenkeel install --selector", workers(6)),
		(*world).startCluster, run("kubectl kustomize config/base >install.yaml"), hidePrograms,
	},
	"docs/gitops.md": { // a rollout with an earlier revision
		installed, (*world).controller, write("more-pods.yaml", morePods), workers(2), pushed,
		run("kubectl evenkeel rollout status workers -w"),
		run("sed -i 's/120/121/' more-pods.yaml && kubectl evenkeel push workers -f more-pods.yaml --drop-in --yes"),
	},
	"docs/install.md": {
		helm, instead("kubectl apply -f https://", run("kubectl apply -f install.yaml")),
		instead("kubectl evenkeel install worker-1", node("worker")),
		(*world).startCluster, run("kubectl kustomize config/base >install.yaml"),
	},
	"docs/kubelets.md": {
		binaries, installed, kubeadm("v1.37.2"), func(w *world) { w.realNode() },
		write("empty.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"),
		write("kubelet.yaml", ownFile+"featureGates: {MemoryManager: true}\n"),
	},
	"docs/metrics.md":   {installed, operatorKind("PrometheusRule"), operatorKind("PodMonitor")},
	"docs/operating.md": {installed, operating},
	"docs/payload.md":   {installed, write("more-pods.yaml", morePods), blocksOf("docs/payload.md", "kind: ConfigMap")},
	"docs/rehearsal.md": {
		installed, (*world).controller, write("good.yaml", morePods), write("bad.yaml", strings.Replace(morePods, "120", "7", 1)),
	},
	"docs/releases.md": { // what is released, and two versions of the agent
		installed, (*world).controller,
		instead("git checkout", run("mkdir -p dist/v0.1.0 the-published && cp SHA256SUMS dist/v0.1.0/ && cp SHA256SUMS the-published/")),
		instead("make release COSIGN_KEY", run("openssl dgst -sha256 -sign ~/cosign.key install.yaml | base64 -w 0 >install.yaml.sig")),
		run("ln -s bin/evenkeel-agent evenkeel-agent-v0.1.0-linux-amd64 && kubectl kustomize config/base >install.yaml"),
		run("sha256sum evenkeel-*-v0.1.0* install.yaml >SHA256SUMS"),
		fleet(hollow.Options{Prefix: "worker-", Nodes: 4}), fleet(hollow.Options{Prefix: "old-", Nodes: 1, Version: "v0.0.9"}),
	},
	"docs/rollouts.md":        {installed, (*world).controller, blocksOf("docs/rollouts.md", "kind: NodeConfigRollout")},
	"docs/scale.md":           {},
	"docs/security.md":        {installed, node("worker")},
	"docs/self-hosted.md":     {installed, node("worker")},
	"docs/sources.md":         {installed, node("worker"), write("more-pods.yaml", morePods), editor("s/maxPods: 120/maxPods: 130/")},
	"docs/survey.md":          {},
	"docs/troubleshooting.md": {troubleshooting},
}

const (
	morePods = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 120\n"
	// ownFile is a kubelet's own configuration, on any host.
	ownFile = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 110\nfailCgroupV1: false\nauthentication: {anonymous: {enabled: false}}\n"
)

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

	setup, is := setups[page]
	if !is {
		setup = []step{installed}
	}

	w := newWorld(t)
	defer func() { assert.OK(t, w.session.Close(), page) }()
	w.take(setup)
	w.executePage(page, commands)
}

// step is a part of a setup. It ends the test if it fails.
type step = func(*world)

func write(name, content string) step   { return func(w *world) { w.write(name, content) } }
func run(command string) step           { return func(w *world) { w.run(command) } }
func fleet(o hollow.Options) step       { return func(w *world) { w.hollowNodes(o) } }
func node(prefix string) step           { return func(w *world) { w.hollowNode(prefix) } }
func tool(path, name string) step       { return func(w *world) { w.linkTool(path, name) } }
func hidePrograms(w *world)             { w.run(`PATH=${PATH#*:}`) } // the page puts evenkeel's own there
func instead(of string, s ...step) step { return func(w *world) { w.instead[of] = s } }

// workers starts the nodes worker-0 and so on, of the pool workers.
func workers(nodes int) step {
	return fleet(hollow.Options{Prefix: "worker-", Nodes: nodes, Labels: pool, Limits: trialOf(time.Second)})
}

// installed has a cluster with evenkeel.
func installed(w *world) {
	w.startCluster()
	w.run("kubectl apply -k config/base && kubectl wait --for=condition=Established crd --all")
}

// pushed has a rollout of more-pods.yaml.
func pushed(w *world) {
	w.run("kubectl evenkeel push workers -f more-pods.yaml --drop-in --selector node-restriction.kubernetes.io/pool=workers --yes")
}

// binaries has programs of the version to upgrade to, and files for them to
// judge.
func binaries(w *world) {
	w.linkTool("kubelet", "kubelet-v1.37.2")
	w.linkTool("kube-proxy", "kube-proxy-v1.37.2")
	w.write("kubelet.yaml", ownFile)
	w.write("config.conf", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmodus: iptables\n")
}

// kubeadm has the real kubeadm make its ConfigMaps of a cluster of this
// version.
func kubeadm(version string) step {
	settings := "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: " + version + "\ncontrolPlaneEndpoint: 192.0.2.10:6443\n"
	return func(w *world) {
		w.ok(w.cluster.Kubeadm(w.t.Context(), localcluster.KubeadmConfig("192.0.2.10", settings),
			"init phase upload-config all", "init phase addon kube-proxy", "init phase addon coredns"))
	}
}

// editedKubeletConfig has a kubelet configuration of kubeadm's that somebody
// has edited.
func editedKubeletConfig(w *world) {
	maps := w.kube.CoreV1().ConfigMaps("kube-system")
	config := assert.Value(maps.Get(w.t.Context(), "kubelet-config", metav1.GetOptions{}))(w.t)
	config.Data["kubelet"] += "dynamicConfigDir: /var/lib/dynamic\nfeatureGates:\n  DynamicKubeletConfig: true\n"
	w.ok(assert.Err(maps.Update(w.t.Context(), config, metav1.UpdateOptions{})))
}

// editor sets the reader's editor to a sed script.
func editor(script string) step {
	return func(w *world) {
		w.writeScript("editor", "#!/bin/sh\nexec sed -i '"+script+"' \"$@\"\n")
		w.run("export EDITOR=$HOME/editor")
	}
}

// helm builds helm.
func helm(w *world) {
	program := filepath.Join(w.workdir, "bin", "helm")
	build := exec.Command("go", "build", "-C", root+"/tools/helm", "-trimpath", "-o", program, "helm.sh/helm/v3/cmd/helm")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	assert.Must(w.t, err == nil, "build helm: %v: %s", err, out)
}

// operatorKind has a kind of the Prometheus Operator, as far as an API server
// needs it to take such objects.
func operatorKind(kind string) step {
	name := strings.ToLower(kind)
	return func(w *world) {
		w.write(name+".yaml", fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[1]ss.monitoring.coreos.com},
  spec: {group: monitoring.coreos.com, scope: Namespaced, names: {kind: %[2]s, plural: %[1]ss, singular: %[1]s}, versions: [{name: v1, served: true, storage: true,
  schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`, name, kind))
		w.run("kubectl apply -f " + name + ".yaml && kubectl wait --for=condition=Established crd/" + name + "s.monitoring.coreos.com")
	}
}

// operating has a real node with an agent, to which a person has assigned the
// local configuration.
func operating(w *world) {
	agent := w.realNode()
	own := assert.Value(os.ReadFile(filepath.Join(filepath.Dir(agent.Dir), "kubelet.yaml")))(w.t)
	w.startAgent(agent)
	w.write("typo.yaml", strings.Replace(morePods, "maxPods", "maxPodz", 1))
	w.write("kubelet.yaml", strings.Replace(string(own), "enabled: false", "enabled: true", 1))
	w.ok(w.kube.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath("/apis/evenkeel.dev/v1alpha1/nodeconfigs/node-1").
		Body([]byte(`{"spec": {"configSource": {"local": {}}}}`)).Do(w.t.Context()).Error())
}

// blocksOf applies those YAML blocks of a page that contain words.
func blocksOf(page, words string) step {
	return func(w *world) {
		text := assert.Value(os.ReadFile(filepath.Join(root, page)))(w.t)
		for i, block := range strings.Split(string(text), "```yaml\n")[1:] {
			if block, _, _ = strings.Cut(block, "```"); strings.Contains(block, words) {
				name := fmt.Sprintf("%s-%d.yaml", filepath.Base(page), i)
				w.write(name, block)
				w.run("kubectl apply -f " + name)
			}
		}
	}
}

// troubleshooting has a rollout, and the paths of worker-1.
func troubleshooting(w *world) {
	dir := w.t.TempDir()
	w.mountNode(filepath.Join(dir, "worker-1"), ownFile)
	w.take([]step{installed, (*world).controller, write("more-pods.yaml", morePods)})
	w.hollowNodes(hollow.Options{Prefix: "worker-", Nodes: 2, Labels: pool, Limits: trialOf(time.Second), Dir: dir})
	pushed(w)
}
