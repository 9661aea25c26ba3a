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
)

func TestAClusterIsReadyAndLeavesNothing(t *testing.T) {
	var log bytes.Buffer
	c, err := Start(t.Context(), Options{Log: &log})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Stop() }() // does nothing if the test has stopped the cluster
	if _, err := admin(t, c).CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("the default service account: %v", err)
	}
	if !strings.Contains(log.String(), "API is ready") || !strings.Contains(log.String(), c.URL()) {
		t.Errorf("the log does not tell that the API is ready at %s:\n%s", c.URL(), log.String())
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := traces(c.Dir(), "none", "none"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary directory is still there: %v", err)
	}
	if err := c.Stop(); err != nil {
		t.Errorf("the second Stop: %v", err)
	}
	if err := c.StartAPIServer(t.Context()); err == nil || !strings.Contains(err.Error(), "cluster is stopped") {
		t.Errorf("StartAPIServer after Stop: %v", err)
	}
}

func TestKubeconfigsHaveTheIdentitiesOfKubernetes(t *testing.T) {
	c := startCluster(t, Options{})
	for _, name := range []string{"node-a", "node-b"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := admin(t, c).CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	label := []byte(`{"metadata":{"labels":{"example.com/a":"b"}}}`)
	patch := func(path string, err error, node string) error {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().Patch(t.Context(), node,
			"application/merge-patch+json", label, metav1.PatchOptions{})
		return err
	}
	path, err := c.NodeKubeconfig("node-a")
	if err := patch(path, err, "node-a"); err != nil {
		t.Errorf("a node on its own Node: %v", err)
	}
	if err := patch(path, err, "node-b"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "not allowed to modify node") {
		t.Errorf("a node on another Node: %v, want NodeRestriction's refusal", err)
	}
	path, err = c.ClientKubeconfig("jane", "readers")
	if err := patch(path, err, "node-a"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "jane"`) {
		t.Errorf("a user without rights: %v, want RBAC's refusal of jane", err)
	}
	path, err = c.ClientKubeconfig("jane", "system:masters")
	if err := patch(path, err, "node-a"); err != nil {
		t.Errorf("the same user in system:masters: %v", err)
	}
}

func TestTheAPIServerComesBackAtItsAddressWithItsData(t *testing.T) {
	c := startCluster(t, Options{Private: true})
	client, url := admin(t, c), c.URL()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second does nothing
		if err := c.StopAPIServer(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err == nil {
		t.Error("the API answers after StopAPIServer")
	}
	for range 2 {
		if err := c.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("the client of before: %v", err)
	}
	if err := c.apiserver.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-c.apiserver.done
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Errorf("after it has died by itself: %v", err)
	}
	if c.URL() != url {
		t.Errorf("URL %s, before %s", c.URL(), url)
	}
}

func TestAnAPIServerCanBeStartedLater(t *testing.T) {
	c := startCluster(t, Options{APIServerLater: true, Manifests: "testdata/manifests"})
	url := c.URL()
	if _, err := admin(t, c).Discovery().ServerVersion(); !net.IsConnectionRefused(err) {
		t.Errorf("before it is started: %v, want a refused connection", err)
	}
	path, err := c.NodeKubeconfig("early")
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := c.SetUp(short); err == nil || !strings.Contains(err.Error(), "service account of namespace default") {
		t.Errorf("SetUp without it: %v", err)
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.SetUp(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin(t, c).CoreV1().ServiceAccounts("workshop").Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("a namespace of the manifests: %v", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
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
	if _, err := admin(t, one).CoreV1().ConfigMaps("default").Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin(t, two).CoreV1().ConfigMaps("default").Get(t.Context(), "mine", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the second cluster on an object of the first: %v, want not found", err)
	}
	if err := one.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := admin(t, two).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the second cluster after the first has stopped: %v", err)
	}
}

func TestADirectoryIsLockedAndCanBeReused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	first := startCluster(t, Options{Dir: dir, Private: true})
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use by another cluster") {
		t.Errorf("a second cluster in the directory: %v", err)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "log", "kube-apiserver.log")); err != nil {
		t.Errorf("a given directory keeps its logs: %v", err)
	}
	if _, err := os.Stat(first.AdminKubeconfig()); err != nil {
		t.Errorf("a given directory keeps its files: %v", err)
	}
	second := startCluster(t, Options{Dir: dir, Private: true})
	if err := second.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestADirectoryWithOtherFilesIsRejected(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "etcd")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "neither empty nor") {
		t.Errorf("Start: %v", err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("what was in it: %v", err)
	}
	if _, err := Start(t.Context(), Options{Dir: filepath.Join(precious, "below-a-file")}); err == nil || !strings.Contains(err.Error(), "make the cluster's directory") {
		t.Errorf("Start below a file: %v", err)
	}
}

func TestStartNamesMissingPrograms(t *testing.T) {
	if _, err := Start(t.Context(), Options{Tools: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "make tools") {
		t.Errorf("without tools: %v", err)
	}
	t.Chdir(t.TempDir())
	if _, err := Start(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "no go.mod") {
		t.Errorf("outside of a module: %v", err)
	}
}

// tools makes a directory of the real tools, in which some are scripts instead.
func tools(t *testing.T, scripts map[string]string) string {
	t.Helper()
	module, err := ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	real, dir := filepath.Join(module, "bin", "tools"), t.TempDir()
	for _, tool := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"} {
		if script, ok := scripts[tool]; ok {
			script = "#!/bin/sh\nreal=" + filepath.Join(real, tool) + "\n" + script + "\n"
			err = os.WriteFile(filepath.Join(dir, tool), []byte(script), 0o755)
		} else {
			err = os.Symlink(filepath.Join(real, tool), filepath.Join(dir, tool))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAProgramThatStopsAtStartIsReportedWithItsLogAndNothingRuns(t *testing.T) {
	for _, tool := range []string{"etcd", "kube-apiserver"} {
		dir := filepath.Join(t.TempDir(), "cluster")
		_, err := Start(t.Context(), Options{Dir: dir, Tools: tools(t, map[string]string{tool: "echo 'I am broken'; exit 7"})})
		if err == nil {
			t.Fatalf("a broken %s: started", tool)
		}
		for _, want := range []string{tool + " stopped", "exit status 7", "I am broken"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("a broken %s: %v, want %q in it", tool, err, want)
			}
		}
		if err := traces(dir, "none", "none"); err != nil {
			t.Errorf("a broken %s: %v", tool, err)
		}
	}
}

func TestAProgramThatCannotBeStartedIsReported(t *testing.T) {
	dir := tools(t, map[string]string{"etcd": ""})
	if err := os.Chmod(filepath.Join(dir, "etcd"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{Tools: dir}); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "start etcd") {
		t.Errorf("Start: %v", err)
	}
}

func TestAProgramThatIsNeverReadyEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := Start(ctx, Options{Tools: tools(t, map[string]string{"etcd": "echo waiting; exec sleep 60"})})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "etcd is not ready") {
		t.Errorf("Start: %v", err)
	}
}

func TestATakenPortIsTriedOnceMoreWithAnother(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "ran")
	script := fmt.Sprintf(`[ -e %[1]s ] && exec "$real" "$@"; echo "$@" >%[1]s; echo 'bind: address already in use'; exit 1`, mark)
	c := startCluster(t, Options{Tools: tools(t, map[string]string{"kube-apiserver": script})})
	refused, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(refused), fmt.Sprintf("--secure-port=%d ", c.apiPort)) {
		t.Errorf("port %d was tried again", c.apiPort)
	}
	if !strings.Contains(string(refused), "--secure-port=") {
		t.Errorf("the first try: %s", refused)
	}
	_, err = Start(t.Context(), Options{Tools: tools(t, map[string]string{"etcd": "echo 'bind: address already in use'; exit 1"})})
	if !errors.Is(err, errPortTaken) {
		t.Errorf("when all ports are taken: %v", err)
	}
}

func TestTheAPIServerCanBeReplaced(t *testing.T) {
	mark, other := filepath.Join(t.TempDir(), "ran"), filepath.Join(t.TempDir(), "other-apiserver")
	module, err := ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\n: >%s; exec %s \"$@\"\n", mark, filepath.Join(module, "bin", "tools", "kube-apiserver"))
	if err := os.WriteFile(other, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	startCluster(t, Options{APIServer: other})
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("it did not run: %v", err)
	}
	if _, err := Start(t.Context(), Options{APIServer: other + "-missing"}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), other+"-missing") {
		t.Errorf("one that is not there: %v", err)
	}
}

func TestFlagsOfTheAPIServerAreAppended(t *testing.T) {
	c := startCluster(t, Options{APIServerLater: true, APIServerFlags: []string{"--profiling=true"}})
	if argv := c.APIServerArgv(); argv[len(argv)-1] != "--profiling=true" {
		t.Errorf("the command line is %q", argv)
	}
}
