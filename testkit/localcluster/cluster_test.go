package localcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAClusterIsReadyAndLeavesNothing(t *testing.T) {
	var log bytes.Buffer
	c := assert.Value(Start(t.Context(), Options{Log: &log}))(t)
	defer func() { _ = c.Stop() }() // does nothing if the test has stopped the cluster
	if _, err := admin(t, c).CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("the default service account: %v", err)
	}
	if !strings.Contains(log.String(), "API is ready") || !strings.Contains(log.String(), c.URL()) {
		t.Errorf("the log does not tell that the API is ready at %s:\n%s", c.URL(), log.String())
	}
	assert.NoError(t, c.Stop())
	assert.OK(t, traces(c.Dir(), "none", "none"))
	assert.Is(t, assert.Err(os.Stat(c.Dir())), os.ErrNotExist, "the temporary directory is still")
	assert.OK(t, c.Stop(), "the second Stop")
	assert.ErrorHas(t, c.StartAPIServer(t.Context()), "cluster is stopped", "StartAPIServer after Stop")
}

func TestKubeconfigsHaveTheIdentitiesOfKubernetes(t *testing.T) {
	c := startCluster(t, Options{})
	for _, name := range []string{"node-a", "node-b"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		assert.NoError(t, assert.Err(admin(t, c).CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})))
	}
	label := []byte(`{"metadata":{"labels":{"example.com/a":"b"}}}`)
	patch := func(path string, err error, node string) error {
		t.Helper()
		assert.NoError(t, err)
		config := assert.Value(clientcmd.BuildConfigFromFlags("", path))(t)
		_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().Patch(t.Context(), node,
			"application/merge-patch+json", label, metav1.PatchOptions{})
		return err
	}
	path, err := c.NodeKubeconfig("node-a")
	assert.OK(t, patch(path, err, "node-a"), "a node on its own Node")
	if err := patch(path, err, "node-b"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "not allowed to modify node") {
		t.Errorf("a node on another Node: %v, want NodeRestriction's refusal", err)
	}
	path, err = c.ClientKubeconfig("jane", "readers")
	if err := patch(path, err, "node-a"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "jane"`) {
		t.Errorf("a user without rights: %v, want RBAC's refusal of jane", err)
	}
	path, err = c.ClientKubeconfig("jane", "system:masters")
	assert.OK(t, patch(path, err, "node-a"), "the same user in system:masters")
}

func TestTheAPIServerComesBackAtItsAddressWithItsData(t *testing.T) {
	c := startCluster(t, Options{Private: true})
	client, url := admin(t, c), c.URL()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	assert.NoError(t, assert.Err(client.CoreV1().ConfigMaps("default").Create(t.Context(), config, metav1.CreateOptions{})))
	for range 2 { // the second does nothing
		assert.NoError(t, c.StopAPIServer())
	}
	assert.That(t, assert.Err(client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})) != nil,
		"the API answers after StopAPIServer")
	for range 2 {
		assert.NoError(t, c.StartAPIServer(t.Context()))
	}
	assert.OK(t, assert.Err(client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})), "the client of before")
	assert.NoError(t, c.apiserver.cmd.Process.Kill())
	<-c.apiserver.done
	assert.OK(t, c.StartAPIServer(t.Context()), "after it has died by itself")
	assert.Equal(t, c.URL(), url, "URL")
}

func TestAnAPIServerCanBeStartedLater(t *testing.T) {
	c := startCluster(t, Options{APIServerLater: true, Manifests: "testdata/manifests"})
	url := c.URL()
	if _, err := admin(t, c).Discovery().ServerVersion(); !net.IsConnectionRefused(err) {
		t.Errorf("before it is started: %v, want a refused connection", err)
	}
	path := assert.Value(c.NodeKubeconfig("early"))(t)
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	assert.ErrorHas(t, c.SetUp(short), "service account of namespace default", "SetUp without it")
	assert.NoError(t, c.StartAPIServer(t.Context()))
	for range 2 {
		assert.NoError(t, c.SetUp(t.Context()))
	}
	if _, err := admin(t, c).CoreV1().ServiceAccounts("workshop").Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("a namespace of the manifests: %v", err)
	}
	config := assert.Value(clientcmd.BuildConfigFromFlags("", path))(t)
	if c.URL() != url || config.Host != url {
		t.Errorf("it is at %s, was to be at %s, and a kubeconfig of before says %s", c.URL(), url, config.Host)
	}
	early := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes()
	if _, err := early.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "early"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("a node whose kubeconfig is of before: %v", err)
	}
}

func TestTwoClustersRunSideBySide(t *testing.T) {
	one, two := startCluster(t, Options{Private: true}), startCluster(t, Options{Private: true})
	if one.URL() == two.URL() || one.Dir() == two.Dir() {
		t.Fatalf("both are at %s in %s", one.URL(), one.Dir())
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	assert.NoError(t, assert.Err(admin(t, one).CoreV1().ConfigMaps("default").Create(t.Context(), config, metav1.CreateOptions{})))
	_, err := admin(t, two).CoreV1().ConfigMaps("default").Get(t.Context(), "mine", metav1.GetOptions{})
	assert.That(t, apierrors.IsNotFound(err), "the second cluster on an object of the first: %v, want not found", err)
	assert.NoError(t, one.Stop())
	if _, err := admin(t, two).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the second cluster after the first has stopped: %v", err)
	}
}

func TestADirectoryIsLockedAndCanBeReused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	first := startCluster(t, Options{Dir: dir, Private: true})
	assert.ErrorHas(t, assert.Err(Start(t.Context(), Options{Dir: dir})), "in use by another cluster", "a second cluster in the directory")
	assert.NoError(t, first.Stop())
	assert.OK(t, assert.Err(os.Stat(filepath.Join(dir, "log", "kube-apiserver.log"))), "a given directory keeps its logs")
	assert.OK(t, assert.Err(os.Stat(first.AdminKubeconfig())), "a given directory keeps its files")
	second := startCluster(t, Options{Dir: dir, Private: true})
	assert.NoError(t, second.Stop())
}

func TestADirectoryWithOtherFilesIsRejected(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "etcd")
	assert.NoError(t, os.WriteFile(precious, nil, 0o600))
	assert.ErrorHas(t, assert.Err(Start(t.Context(), Options{Dir: dir})), "neither empty nor", "Start")
	assert.OK(t, assert.Err(os.Stat(precious)), "what was in it")
	_, err := Start(t.Context(), Options{Dir: filepath.Join(precious, "below-a-file")})
	assert.That(t, err != nil && strings.Contains(err.Error(), "make the cluster's directory"), "Start below a file: %v", err)
}

func TestStartNamesMissingPrograms(t *testing.T) {
	assert.ErrorHas(t, assert.Err(Start(t.Context(), Options{Tools: t.TempDir()})), "make tools", "without tools")
	t.Chdir(t.TempDir())
	assert.ErrorHas(t, assert.Err(Start(t.Context(), Options{})), "no go.mod", "outside of a module")
}

// tools makes a directory of the real tools, in which some are scripts instead.
func tools(t *testing.T, scripts map[string]string) string {
	t.Helper()
	module, err := ModuleRoot()
	assert.NoError(t, err)
	real, dir := filepath.Join(module, "bin", "tools"), t.TempDir()
	for _, tool := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"} {
		if script, ok := scripts[tool]; ok {
			script = "#!/bin/sh\nreal=" + filepath.Join(real, tool) + "\n" + script + "\n"
			err = os.WriteFile(filepath.Join(dir, tool), []byte(script), 0o755)
		} else {
			err = os.Symlink(filepath.Join(real, tool), filepath.Join(dir, tool))
		}
		assert.NoError(t, err)
	}
	return dir
}

func TestAProgramThatStopsAtStartIsReportedWithItsLogAndNothingRuns(t *testing.T) {
	for _, tool := range []string{"etcd", "kube-apiserver"} {
		dir := filepath.Join(t.TempDir(), "cluster")
		_, err := Start(t.Context(), Options{Dir: dir, Tools: tools(t, map[string]string{tool: "echo 'I am broken'; exit 7"})})
		assert.Must(t, err != nil, "a broken %s: started", tool)
		for _, want := range []string{tool + " stopped", "exit status 7", "I am broken"} {
			assert.That(t, strings.Contains(err.Error(), want), "a broken %s: %v, want %q in it", tool, err, want)
		}
		assert.OK(t, traces(dir, "none", "none"), "a broken", tool)
	}
}

func TestAProgramThatCannotBeStartedIsReported(t *testing.T) {
	dir := tools(t, map[string]string{"etcd": ""})
	assert.NoError(t, os.Chmod(filepath.Join(dir, "etcd"), 0o644))
	_, err := Start(t.Context(), Options{Tools: dir})
	assert.That(t, errors.Is(err, os.ErrPermission) && strings.Contains(err.Error(), "start etcd"), "Start: %v", err)
}

func TestAProgramThatIsNeverReadyEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := Start(ctx, Options{Tools: tools(t, map[string]string{"etcd": "echo waiting; exec sleep 60"})})
	assert.That(t, errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "etcd is not ready"), "Start: %v", err)
}

func TestATakenPortIsTriedOnceMoreWithAnother(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "ran")
	script := fmt.Sprintf(`[ -e %[1]s ] && exec "$real" "$@"; echo "$@" >%[1]s; echo 'bind: address already in use'; exit 1`, mark)
	c := startCluster(t, Options{Tools: tools(t, map[string]string{"kube-apiserver": script})})
	refused, err := os.ReadFile(mark)
	assert.NoError(t, err)
	if strings.Contains(string(refused), fmt.Sprintf("--secure-port=%d ", c.apiPort)) {
		t.Errorf("port %d was tried again", c.apiPort)
	}
	assert.That(t, strings.Contains(string(refused), "--secure-port="), "the first try: %s", refused)
	_, err = Start(t.Context(), Options{Tools: tools(t, map[string]string{"etcd": "echo 'bind: address already in use'; exit 1"})})
	assert.Is(t, err, errPortTaken, "when all ports are taken")
}

func TestTheAPIServerCanBeReplaced(t *testing.T) {
	mark, other := filepath.Join(t.TempDir(), "ran"), filepath.Join(t.TempDir(), "other-apiserver")
	module := assert.Value(ModuleRoot())(t)
	script := fmt.Sprintf("#!/bin/sh\n: >%s; exec %s \"$@\"\n", mark, filepath.Join(module, "bin", "tools", "kube-apiserver"))
	assert.NoError(t, os.WriteFile(other, []byte(script), 0o755))
	startCluster(t, Options{APIServer: other})
	assert.OK(t, assert.Err(os.Stat(mark)), "it did not run")
	_, err := Start(t.Context(), Options{APIServer: other + "-missing"})
	assert.That(t, errors.Is(err, os.ErrNotExist) && strings.Contains(err.Error(), other+"-missing"), "one that is not there: %v", err)
}

func TestFlagsOfTheAPIServerAreAppended(t *testing.T) {
	c := startCluster(t, Options{APIServerLater: true, APIServerFlags: []string{"--profiling=true"}})
	argv := c.APIServerArgv()
	assert.That(t, argv[len(argv)-1] == "--profiling=true", "the command line is %q", argv)
}
