// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/internal/operator/survey"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/procs"
)

// TestFieldsActAsTheTableSays changes many fields at once, and compares what
// the table of fields says about each with what the node, its kubelet, a pod
// that ran before, and a new pod do.
func TestFieldsActAsTheTableSays(t *testing.T) {
	t.Parallel()
	n := newNode(t, "fields", "--config-trial-duration=5s", "--protected-fields=")
	n.Up()
	n.fieldPods("old")
	dir := t.TempDir()
	write := func(name, text string) {
		assert.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		assert.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	port := func() int {
		_, port, _ := net.SplitHostPort(assert.Value(localcluster.FreeAddress())(t))
		return assert.Value(strconv.Atoi(port))(t)
	}
	write("resolv.conf", "nameserver 192.0.2.7\n")
	write("manifests/pod.yaml", `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static"},
		"spec": {"automountServiceAccountToken": false, "hostNetwork": true, "containers": [{"name": "a", "image": "`+localcluster.SleepImage+`"}]}}`)
	before, old := n.fieldFacts(), n.fieldPodFacts("old")

	changes := map[string]any{
		"maxPods": 57, "kubeReserved": map[string]any{"cpu": "123m"}, "systemReserved": map[string]any{"ephemeral-storage": "11Mi"},
		"evictionHard": map[string]any{"memory.available": "123Mi"}, "nodeStatusMaxImages": 0, "readOnlyPort": port(),
		"healthzPort": port(), "tlsMinVersion": "VersionTLS13", "enableSystemLogHandler": false, "enableProfilingHandler": false,
		"enableControllerAttachDetach": false, "maxOpenFiles": 12345, "staticPodPath": filepath.Join(dir, "manifests"),
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}},
		"kubeAPIQPS":     7, "kubeAPIBurst": 13, "syncFrequency": "17s", "containerLogMaxFiles": 9, "imageGCHighThresholdPercent": 91,

		"podPidsLimit": 4321, "cpuCFSQuota": false, "seccompDefault": true, "clusterDNS": []string{"192.0.2.53"},
		"clusterDomain": "changed.example", "resolvConf": filepath.Join(dir, "resolv.conf"), "podLogsDir": filepath.Join(dir, "logs"),

		"registerWithTaints": []any{map[string]any{"key": "changed", "effect": "NoSchedule"}}, "providerID": "changed://1",

		"hairpinMode": "hairpin-veth", "iptablesDropBit": 11, "iptablesMasqueradeBit": 12, "streamingConnectionIdleTimeout": "1h0m0s",
	}
	dropIn := maps.Clone(changes)
	dropIn["apiVersion"], dropIn["kind"] = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	cm := n.CreateMap("fields", map[string]string{payload.KeyKubeletDropin: string(assert.Value(yaml.Marshal(dropIn))(t))})
	n.AssignMap(cm)
	n.LastKnownGood(cm)
	n.fieldPods("new")
	n.Eventually("the static pod exists", func(ctx context.Context) error {
		return assert.Err(n.Kube.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, "static-"+n.Node.Name(), metav1.GetOptions{}))
	})
	after, kept, fresh := n.fieldFacts(), n.fieldPodFacts("old"), n.fieldPodFacts("new")

	config := assert.Value(n.KubeletConfigz(t.Context()))(t)
	for field := range changes {
		name := field
		if field == "authentication" {
			name = "authentication.anonymous.enabled"
		}

		effect, onNode, onPods := payload.Effect(name), before[field] != after[field], old[field] != fresh[field]
		assert.That(t, old[field] == kept[field], "%s: the pod that ran before has %q, and had %q", field, kept[field], old[field])
		switch {
		case strings.Contains(effect, "new pods") || strings.Contains(effect, "containers"):
			assert.That(t, onPods, "%s: %q, but a new pod has %q, like the old one", field, effect, fresh[field])
		case strings.Contains(effect, "registers"):
			assert.That(t, before[field] != "" && !onNode, "%s: %q, but the node had %q and has %q", field, effect, before[field], after[field])
		case effect != "" || before[field] == "": // nothing shows it but the kubelet's own configuration
			assert.That(t, fmt.Sprint(config[field]) == fmt.Sprint(changes[field]), "%s: the kubelet has %v", field, config[field])
		default:
			assert.That(t, onNode, "%s: acts at the restart, but is still %q", field, after[field])
		}
	}
}

// fieldPods starts a pod with the DNS settings of the cluster and one with
// those of the node. Both have limits of CPU.
func (n *node) fieldPods(name string) {
	n.t.Helper()
	for suffix, policy := range map[string]corev1.DNSPolicy{"": corev1.DNSClusterFirst, "-default": corev1.DNSDefault} {
		n.RunPodsWith(func(spec *corev1.PodSpec) {
			spec.DNSPolicy = policy
			spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
		}, name+suffix)
	}
}

// fieldFacts returns what node and kubelet show of fields, by the name of the
// field.
func (n *node) fieldFacts() map[string]string {
	n.t.Helper()
	ctx := n.t.Context()
	obj := assert.Value(n.Object(ctx))(n.t)
	config := assert.Value(n.KubeletConfigz(ctx))(n.t)
	limits := string(assert.Value(os.ReadFile(fmt.Sprintf("/proc/%d/limits", n.RunningPID())))(n.t))
	_, files, _ := strings.Cut(limits, "Max open files")
	pods := assert.Value(n.Pods(ctx))(n.t)
	static := slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Name == "static-"+n.Node.Name() })
	server := fmt.Sprintf("https://127.0.0.1:%v", config["port"])
	proxy := func(path string) string {
		code := 0
		n.Kube.CoreV1().RESTClient().Get().Resource("nodes").Name(n.Node.Name()).SubResource("proxy").Suffix(path).Do(ctx).StatusCode(&code)
		return strconv.Itoa(code)
	}
	// A port that is closed answers with an error, which is an answer, too.
	answer := func(url string, version uint16) string {
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MaxVersion: version}}} // it is asked for its status only
		resp, err := c.Get(url)
		if err != nil {
			return "no answer"
		}

		defer resp.Body.Close()

		return resp.Status
	}

	return map[string]string{
		"maxPods":                      obj.Status.Capacity.Pods().String(),
		"kubeReserved":                 obj.Status.Allocatable.Cpu().String(),
		"systemReserved":               obj.Status.Allocatable.StorageEphemeral().String(),
		"evictionHard":                 obj.Status.Allocatable.Memory().String(),
		"nodeStatusMaxImages":          fmt.Sprint("any: ", len(obj.Status.Images) > 0),
		"enableControllerAttachDetach": "annotation " + obj.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"],
		"readOnlyPort":                 fmt.Sprint(config["readOnlyPort"], answer(fmt.Sprintf("http://127.0.0.1:%v/pods", config["readOnlyPort"]), 0)),
		"healthzPort":                  fmt.Sprint(config["healthzPort"], answer(fmt.Sprintf("http://127.0.0.1:%v/healthz", config["healthzPort"]), 0)),
		"tlsMinVersion":                answer(server+"/healthz", tls.VersionTLS12),
		"authentication":               answer(server+"/pods", 0),
		"enableSystemLogHandler":       proxy("logs/"),
		"enableProfilingHandler":       proxy("debug/pprof/cmdline"),
		"maxOpenFiles":                 strings.Fields(files)[0],
		"staticPodPath":                strconv.FormatBool(static),
		"registerWithTaints":           fmt.Sprint("taints ", obj.Spec.Taints),
		"providerID":                   "ID " + obj.Spec.ProviderID,
	}
}

// fieldPodFacts returns what shows fields in the pods of fieldPods.
func (n *node) fieldPodFacts(name string) map[string]string {
	n.t.Helper()
	process := func(name string) (uid, dir string) {
		pod := assert.Value(n.Kube.CoreV1().Pods(metav1.NamespaceDefault).Get(n.t.Context(), n.Node.Name()+"-"+name, metav1.GetOptions{}))(n.t)
		id := pod.Status.ContainerStatuses[0].ContainerID
		id = id[strings.LastIndex(id, "/")+1:]
		for _, p := range procs.All("/proc") {
			if text, err := os.ReadFile(p.Dir + "/cgroup"); err == nil && strings.Contains(string(text), id) {
				return string(pod.UID), p.Dir
			}
		}

		n.t.Fatalf("no process has the container %s of pod %s", id, pod.Name)

		return "", ""
	}
	read := func(path string) string { return string(assert.Value(os.ReadFile(path))(n.t)) }
	uid, dir := process(name)
	_, other := process(name + "-default")
	// The cgroup of the pod is the parent of that of the container.
	limit := func(controller, v1, v2 string) string {
		for line := range strings.Lines(read(dir + "/cgroup")) {
			fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if slices.Contains(strings.Split(fields[1], ","), controller) {
				return read(filepath.Join("/sys/fs/cgroup", controller, filepath.Dir(fields[2]), v1))
			}
		}

		_, path, _ := strings.Cut(strings.TrimSpace(read(dir+"/cgroup")), "::")

		return read(filepath.Join("/sys/fs/cgroup", filepath.Dir(path), v2))
	}
	_, seccomp, _ := strings.Cut(read(dir+"/status"), "Seccomp:")
	dns := read(dir + "/root/etc/resolv.conf")
	lineOf := func(word string) string { return regexp.MustCompile("(?m)^" + word + " .*$").FindString(dns) }
	config := assert.Value(n.KubeletConfigz(n.t.Context()))(n.t)
	logs := "other directory"
	if m, _ := filepath.Glob(filepath.Join(fmt.Sprint(config["podLogsDir"]), "*_"+uid)); len(m) > 0 {
		logs = fmt.Sprint(config["podLogsDir"])
	}
	if name == "old" {
		logs = "" // its directory does not move
	}

	return map[string]string{
		"podPidsLimit": limit("pids", "pids.max", "pids.max"), "cpuCFSQuota": limit("cpu", "cpu.cfs_quota_us", "cpu.max"),
		"seccompDefault": strings.Fields(seccomp)[0], "clusterDNS": lineOf("nameserver"), "clusterDomain": lineOf("search"),
		"resolvConf": read(other + "/root/etc/resolv.conf"), "podLogsDir": logs,
	}
}

func TestSurveyShowsWhatARealKubeletRuns(t *testing.T) {
	t.Parallel()
	n := newNode(t, "survey")
	n.Up()
	silent := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "surveyed-silent", Labels: map[string]string{"surveyed": ""}}}
	assert.Value(n.Kube.CoreV1().Nodes().Create(t.Context(), silent, metav1.CreateOptions{}))(t)
	surveyed := assert.Value(n.Kube.CoreV1().Nodes().Patch(t.Context(), n.Node.Name(), types.MergePatchType, []byte(`{"metadata": {"labels": {"surveyed": ""}}}`),
		metav1.PatchOptions{}))(t)
	want := assert.Value(n.KubeletConfigz(t.Context()))(t)

	var out bytes.Buffer
	code := assert.Value(n.Evenkeel(t.Context(), &out, "survey", "-l", "surveyed", "-o", "json", "--component-binary", "kubelet="+tool("kubelet")))(t)
	text := out.Bytes()[bytes.IndexByte(out.Bytes(), '{'):] // behind the progress
	var r survey.Report
	assert.NoError(t, json.Unmarshal(text, &r), out.String())
	assert.Must(t, code == 3 && r.Nodes == 2 && r.Read == 1 && len(r.Configurations) == 1 && len(r.Unread) == 1, "exit code %d: %s", code, &out)
	got := r.Configurations[0]
	delete(want, "apiVersion")
	delete(want, "kind")
	for name, value := range got.Fields {
		if value == survey.Own {
			want[name] = survey.Own
		}
	}

	assert.NoDiff(t, cmp.Diff(want, got.Fields), "survey does not show what /configz says")
	assert.Equal(t, got.Kubelets[surveyed.Status.NodeInfo.KubeletVersion], 1)
	assert.Equal(t, got.Verdict.Outcome, survey.WouldStart, got.Verdict.Message)
	assert.Equal(t, r.Unread[0].Names[0], silent.Name)
}
