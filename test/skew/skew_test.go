// Package skew_test tests version skew: it runs the previous version's agents with this version's controller and CRDs, and the reverse,
// as during an upgrade. The file previous names the previous version; `make previous` builds it.
package skew_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

const (
	root   = "../.."
	often  = 100 * time.Millisecond
	within = 2 * time.Minute
	nodes  = 4
)

// version is where the programs and the manifests of one version are.
type version struct {
	name, programs, config string
}

var this = version{name: "this", programs: filepath.Join(root, "bin"), config: filepath.Join(root, "config")}

// previous returns the version before.
func previous(t *testing.T) version {
	t.Helper()
	commit := assert.Value(os.ReadFile("previous"))(t)
	dir := filepath.Join(root, "bin/previous", strings.TrimSpace(string(commit)))
	if _, err := os.Stat(filepath.Join(dir, ".built")); err != nil {
		t.Fatalf("%v: run make previous", err)
	}
	return version{name: "previous", programs: dir, config: filepath.Join(dir, "src/config")}
}

// world is a cluster that has the API and the controller's rights of one version.
type world struct {
	t       *testing.T
	cluster *localcluster.Cluster
	client.Client
}

func start(t *testing.T, api version) *world {
	t.Helper()
	klog.SetLogger(logr.Discard())
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	cluster := localcluster.StartForTest(t, localcluster.Options{Manifests: filepath.Join(api.config, "api")})
	assert.NoError(t, cluster.Apply(ctx, filepath.Join(api.config, "controller")))
	scheme := runtime.NewScheme()
	assert.NoError(t, errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)))
	c := assert.Value(client.New(cluster.AdminConfig(), client.Options{Scheme: scheme}))(t)
	return &world{t, cluster, c}
}

// upgrade applies the API of another version.
func (w *world) upgrade(to version) {
	w.t.Helper()
	for _, dir := range []string{"api", "controller"} {
		assert.NoError(w.t, w.cluster.Apply(w.t.Context(), filepath.Join(to.config, dir)))
	}
}

// spawn starts a program. The end of the test stops it, and requires a clean exit.
func (w *world) spawn(t *testing.T, of version, name string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	assert.NoError(t, err)
	defer log.Close()
	cmd := exec.Command(filepath.Join(of.programs, name), args...)
	cmd.Stdout, cmd.Stderr = log, log
	done, err := localcluster.StartTied(cmd)
	assert.Must(t, err == nil, "%v: run make build", err)
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Errorf("the %s of version %s did not stop", name, of.name)
			_ = cmd.Process.Kill()
			<-done
		}
		said, _ := os.ReadFile(log.Name())
		code := cmd.ProcessState.ExitCode()
		assert.That(t, code <= 0, "the %s of version %s ended with %d", name, of.name, code)
		if t.Failed() {
			t.Logf("the %s of version %s said:\n%s", name, of.name, said[max(0, len(said)-8000):])
		}
	})
}

// await polls until done returns true.
func (w *world) await(t *testing.T, what string, done func() (now string, ok bool)) {
	t.Helper()
	for deadline := time.Now().Add(within); ; <-time.After(often) {
		now, ok := done()
		if ok {
			return
		}
		assert.Must(t, !time.Now().After(deadline), "%s: not within %v; now: %s", what, within, now)
	}
}

// rollout makes the rollout of a pool, or gives it another configuration.
func (w *world) rollout(t *testing.T, pool, fields string) {
	t.Helper()
	kubelet, err := json.Marshal(map[string]any{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "maxPods": json.Number(fields)})
	assert.NoError(t, err)
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: pool}}
	err = w.Get(t.Context(), client.ObjectKeyFromObject(r), r)
	r.Spec.NodeSelector.MatchLabels = map[string]string{"pool": pool}
	r.Spec.Template = v1alpha1.RolloutTemplate{Kubelet: &runtime.RawExtension{Raw: kubelet}}
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err != nil {
		err = w.Create(t.Context(), r)
	} else {
		err = w.Update(t.Context(), r)
	}
	assert.NoError(t, err)
}

// phase waits until the rollout of a pool says of a revision that it is in a phase, and returns its status.
func (w *world) phase(t *testing.T, pool string, revision int64, want v1alpha1.RolloutPhase) v1alpha1.NodeConfigRolloutStatus {
	t.Helper()
	r := &v1alpha1.NodeConfigRollout{}
	w.await(t, fmt.Sprintf("revision %d of %s is %s", revision, pool, want), func() (string, bool) {
		if err := w.Get(t.Context(), client.ObjectKey{Name: pool}, r); err != nil {
			return err.Error(), false
		}
		st := r.Status
		return fmt.Sprintf("%s, %s, %+v", st.Phase, st.Message, st.UpdateRevision), st.Phase == want && st.UpdateRevision != nil && st.UpdateRevision.Number == revision
	})
	return r.Status
}

// rollsOut has a controller roll a good configuration out over agents, and then a bad one, which is stopped and reported.
func rollsOut(t *testing.T, w *world, pool string, agents, controller version) {
	t.Helper()
	w.spawn(t, agents, "evenkeel-hollow", "--kubeconfig="+w.cluster.AdminKubeconfig(), fmt.Sprintf("--nodes=%d", nodes), "--name-prefix="+pool+"-",
		"--label=pool="+pool, "--trial-duration=1s", "--crash-loop-threshold=1", "--lease-period=2s", "--cleanup=false", "--fault=crashloop,field=maxPods:7")
	kubeconfig := assert.Value(w.cluster.ClientKubeconfig("system:serviceaccount:evenkeel-system:evenkeel-controller",
		"system:serviceaccounts", "system:serviceaccounts:evenkeel-system", "system:authenticated"))(t)
	w.spawn(t, controller, "evenkeel-controller", "--kubeconfig="+kubeconfig, "--metrics-bind-address=0", "--health-probe-bind-address=0")

	// All nodes report before the rollout begins, or it would be judged by fewer.
	w.await(t, "all agents report", func() (string, bool) {
		reported := w.nodeConfigs(t, pool)
		return fmt.Sprint(len(reported)), len(reported) == nodes
	})
	w.rollout(t, pool, "101")
	good := w.phase(t, pool, 1, v1alpha1.RolloutComplete).UpdateRevision.ConfigMapRef
	for _, nc := range w.nodeConfigs(t, pool) {
		if st := nc.Status; st.Active == nil || st.Active.UID != good.UID || st.Conditions[0].Reason != v1alpha1.ReasonAllChecksPassed {
			t.Errorf("%s reports %+v", nc.Name, st)
		}
	}

	w.rollout(t, pool, "7")
	st := w.phase(t, pool, 2, v1alpha1.RolloutHalted)
	if st.Halt == nil || st.Halt.Reason != "TooManyFailures" || len(st.FailedNodes) != 1 || st.FailedNodes[0].Reason != v1alpha1.ReasonCrashLooped {
		t.Fatalf("it was stopped with %+v, failed nodes %+v", st.Halt, st.FailedNodes)
	}
	bad := st.UpdateRevision.ConfigMapRef
	for _, nc := range w.nodeConfigs(t, pool) {
		tried := nc.Name == st.FailedNodes[0].Name
		assert.That(t, len(nc.Status.BadConfigs) > 0 == tried && (!tried || nc.Status.BadConfigs[0].UID == bad.UID),
			"%s reports as bad %+v", nc.Name, nc.Status.BadConfigs)
		if st := nc.Status; st.Active == nil || st.Active.UID != good.UID {
			t.Errorf("%s runs %+v", nc.Name, st.Active)
		}
	}
}

// nodeConfigs are those of a pool whose agents have reported.
func (w *world) nodeConfigs(t *testing.T, pool string) []v1alpha1.NodeConfig {
	t.Helper()
	var list v1alpha1.NodeConfigList
	assert.NoError(t, w.List(t.Context(), &list))
	var of []v1alpha1.NodeConfig
	for _, nc := range list.Items {
		if strings.HasPrefix(nc.Name, pool+"-") && len(nc.Status.Conditions) > 0 {
			of = append(of, nc)
		}
	}
	return of
}

func TestThePreviousVersionWorksWithThisOne(t *testing.T) {
	before := previous(t)
	w := start(t, before)
	t.Run("the API of before, its controller, these agents", func(t *testing.T) { rollsOut(t, w, "a", this, before) })
	w.upgrade(this)
	t.Run("this API, the controller of before, these agents", func(t *testing.T) { rollsOut(t, w, "b", this, before) })
	t.Run("this API and controller, the agents of before", func(t *testing.T) { rollsOut(t, w, "c", before, this) })
	t.Run("this API, the agents of before at their largest", func(t *testing.T) { largest(t, w, before) })
}

// largest has an agent of the version before report the largest status that its code makes: the API must take all of it. Of
// commit 60518b9, in bytes:
//
//	10 badConfigs            29,300   reasons of 2,180 (the dry run's words are clipped at 2,003), and names, UIDs and keys
//	error, conditions        10,200   a refusal names 5 protected fields, each with 303 of its name and of both its values
//	100 overriddenFields      2,700   the paths of a kubelet's fields
//	the rest                  3,000   three revisions, a rollout, a trial
//
// The rest up to 65,536 is for text that JSON writes with escape sequences, and for longer paths: the keys of a map that a
// flag replaces. Only a payload made for the purpose, with hundreds of bytes in each of a hundred such keys, or with
// thousands of < in each of ten rejected configurations, makes that agent write more. The API server then refuses the
// status, and only the Node's condition ConfigOK and its Events have the state.
func largest(t *testing.T, w *world, before version) {
	t.Helper()
	const node = "largest"
	assert.NoError(t, w.Create(t.Context(), &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: node}}))
	kubeconfig, err := w.cluster.ClientKubeconfig("system:node:"+node, "system:nodes", "system:authenticated")
	assert.NoError(t, err)
	var said, trouble bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(before.programs, "largest-status"), kubeconfig, node)
	cmd.Stdout, cmd.Stderr = &said, &trouble
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &trouble)
	}
	var want v1alpha1.NodeConfigStatus
	assert.NoError(t, json.Unmarshal(said.Bytes(), &want))
	if len(want.BadConfigs) != v1alpha1.MaxBadConfigs || len(want.BadConfigs[0].Reason) < 2000 || len(want.OverriddenFields) < v1alpha1.MaxOverriddenFields ||
		len(want.Error) < 4096 || len(want.Conditions[0].Message) < 4096 || want.Trial == nil || want.LastKnownGood == nil || want.Active == nil {
		t.Errorf("it is not the largest: %d bad configs, %d bytes of the first one's reason, %d overridden fields, %d bytes of error, %d of message",
			len(want.BadConfigs), len(want.BadConfigs[0].Reason), len(want.OverriddenFields), len(want.Error), len(want.Conditions[0].Message))
	}
	want.OverriddenFields = want.OverriddenFields[:v1alpha1.MaxOverriddenFields] // as that agent cuts them
	got := &v1alpha1.NodeConfig{}
	assert.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: node}, got))
	stored := assert.Value(json.Marshal(got.Status))(t)
	size := func(v any) int {
		text := assert.Value(json.Marshal(v))(t)
		return len(text)
	}
	t.Logf("the largest status of the version before has %d bytes, of %d: badConfigs %d, error %d, conditions %d, overriddenFields %d", len(stored),
		v1alpha1.MaxStatusBytes, size(got.Status.BadConfigs), size(got.Status.Error), size(got.Status.Conditions), size(got.Status.OverriddenFields))
	forget := func(s *v1alpha1.NodeConfigStatus) string {
		s.Conditions[0].LastTransitionTime = metav1.Time{}
		text, err := json.Marshal(s) // times to the second, as they are stored
		assert.NoError(t, err)
		return string(text)
	}
	assert.NoDiff(t, cmp.Diff(forget(&want), forget(&got.Status)), "(- reported, + there)")
}
