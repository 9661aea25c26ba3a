package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// contexts writes a kubeconfig with the contexts "here", which is the current one and reaches the cluster, "away", whose API server
// does not exist, and "also away".
func contexts(t *testing.T) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(cluster.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		t.Fatal(err)
	}
	closed := localcluster.FreeAddressForTest(t)
	config.Clusters["away"] = &clientcmdapi.Cluster{Server: "https://" + closed}
	config.Contexts = map[string]*clientcmdapi.Context{
		"here": config.Contexts[config.CurrentContext], "away": {Cluster: "away"}, "also away": {Cluster: "away"},
	}
	config.CurrentContext = "here"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheDashboardRefusesContextsThatItCannotShow(t *testing.T) {
	kubeconfig := contexts(t)
	evenkeelAs(t, kubeconfig, "dashboard", "--port=0", "--context=here", "--context=nowhere").
		wantError(t, `context "nowhere" does not exist in the kubeconfig (`, `); existing contexts: also away, away, here`)
	evenkeelAs(t, kubeconfig, "dashboard", "--port=0", "--context=here", "--context=away", "--token=secret", "--server=https://other").
		wantError(t, "--server, --token cannot be used with several contexts: it would apply to all of them")
	evenkeelAs(t, kubeconfig, "dashboard", "--port=0", "--context=away").wantError(t, "list NodeConfigs", "the API server cannot be reached")
	evenkeelAs(t, kubeconfig, "dashboard", "--port=0", "--context=away", "--context=also away").wantError(t, `context "away": list NodeConfigs`, `context "also away": list NodeConfigs`)
	// For other commands it is still kubectl's flag.
	evenkeelAs(t, kubeconfig, "nodes", "--context=away").wantError(t, "the API server cannot be reached")
	evenkeelAs(t, kubeconfig, "nodes", "--context=nowhere").wantError(t, `context "nowhere" does not exist`)
	if a := evenkeelAs(t, kubeconfig, "nodes", "--context=away", "--context=here"); a.code != 0 {
		t.Errorf("the last one does not count: exit %d: %s", a.code, a.err)
	}
}

func TestTheDashboardNamesAPortThatIsInUse(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	a := evenkeel(t, "dashboard", "--port="+port)
	a.wantError(t, "port "+port+" of this machine is in use by another program: choose another with --port, or --port 0 for any free port")
	if strings.Contains(a.err, "API server") {
		t.Errorf("it blames the API server: %s", a.err)
	}
}

// page is a dashboard that serves.
type page struct {
	t              *testing.T
	address, token string
}

// serve starts a dashboard and returns it when it has printed its address. It ends with the test.
func serve(t *testing.T, args ...string) *page {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan int, 1)
	go func() {
		code := Run(ctx, program.NewInfo("kubectl-evenkeel", "v0.0.0-test", "0123abcd"), append([]string{"dashboard", "--port=0"}, args...),
			genericclioptions.IOStreams{In: strings.NewReader(""), Out: in, ErrOut: in})
		in.Close()
		done <- code
	}()
	lines := bufio.NewScanner(out)
	lines.Scan()
	address, token, found := strings.Cut(strings.TrimPrefix(lines.Text(), "open "), "#")
	t.Cleanup(func() {
		cancel()
		_, _ = io.Copy(io.Discard, out) // what it still prints
		if code := <-done; code != 0 {
			t.Errorf("the dashboard ends with %d", code)
		}
	})
	if !found {
		t.Fatalf("the dashboard prints %q", lines.Text())
	}
	return &page{t, address, token}
}

// get reads an answer of the API until use returns no error.
func (p *page) get(path string, use func(io.Reader) error) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.address+strings.TrimPrefix(path, "/"), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := use(answer.Body); err != nil {
		p.t.Fatalf("%s answers %s: %v", path, answer.Status, err)
	}
}

// event is what a test reads from the feed.
type event struct {
	Rest *struct {
		Ready   bool
		Trouble []struct{ Why string }
		Rights  struct {
			MayPatch, MayListNodes bool
			Words                  string
		}
	}
}

// await reads a feed until an event has what a test wants.
func (p *page) await(path string, wanted func(event) bool) {
	p.t.Helper()
	p.get(path, func(body io.Reader) error {
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
				var e event
				if err := json.Unmarshal([]byte(data), &e); err != nil || e.Rest != nil && wanted(e) {
					return err
				}
			}
		}
		return errors.Join(errors.New("the feed ends"), lines.Err())
	})
}

func TestAClusterThatCannotBeReachedDoesNotHideTheOthers(t *testing.T) {
	kubeconfig := contexts(t)
	p := serve(t, "--context=away", "--context", "here", "--context=here", "--kubeconfig="+kubeconfig)
	p.get("/api/about", func(body io.Reader) error {
		var about struct {
			Clusters []struct {
				ID              int
				Context, Server string
			}
		}
		err := json.NewDecoder(body).Decode(&about)
		if c := about.Clusters; err == nil && (len(c) != 2 || c[0].Context != "away" || c[1].Context != "here" || c[1].ID != 1 || c[1].Server != cluster.AdminConfig().Host) {
			err = fmt.Errorf("the clusters are %+v", c)
		}
		return err
	})
	p.await("/api/clusters/1/feed", func(e event) bool { return e.Rest.Ready && len(e.Rest.Trouble) == 0 })
	p.await("/api/clusters/0/feed", func(e event) bool {
		return !e.Rest.Ready && len(e.Rest.Trouble) > 0 && strings.Contains(e.Rest.Trouble[0].Why, "connection refused")
	})
}

func TestTheDashboardShowsTheCurrentContext(t *testing.T) {
	p := serve(t, "--kubeconfig="+contexts(t))
	p.get("/api/about", func(body io.Reader) error {
		text, err := io.ReadAll(body)
		if err == nil && !strings.Contains(string(text), `"clusters":[{"id":0,"context":"here",`) {
			err = fmt.Errorf("it is about %s", text)
		}
		return err
	})
	p.await("/api/clusters/0/feed", func(e event) bool { return e.Rest.Ready })
}

// answer reads an answer of the API as text.
func (p *page) answer(path string) (text string) {
	p.t.Helper()
	p.get(path, func(body io.Reader) error {
		data, err := io.ReadAll(body)
		text = string(data)
		return err
	})
	return text
}

func TestTheLogOfARolloutHasEventsOfBothAPIs(t *testing.T) {
	cm := createRevision(t, "logged", 1, "maxPods: 7\n")
	createRollout(t, "logged", "logged", pods(7), nil)
	createNode(t, "logged-a", "logged", "z1")
	createNodeConfig(t, "logged-a", byRollout("logged", 1, cm, nil), func(st *v1alpha1.NodeConfigStatus) {
		failing(st, v1alpha1.ReasonCrashLooped, "the kubelet exited 4 times")
	})
	now := metav1.Now()
	create(t, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "logged-a.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "logged-a", UID: "logged-a"}, Source: corev1.EventSource{Component: "evenkeel-agent", Host: "logged-a"},
		Type: "Warning", Reason: "KubeletGivenUp", Message: "of the agent", FirstTimestamp: now, LastTimestamp: now, Count: 1,
	})
	events := kubernetes.NewForConfigOrDie(cluster.AdminConfig()).EventsV1().Events("default")
	if _, err := events.Create(t.Context(), &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logged.1"}, EventTime: metav1.NowMicro(), Type: "Normal", Reason: "RolloutStarted", Action: "Rollout", Note: "of the controller",
		Regarding:           corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeConfigRollout", Name: "logged"},
		ReportingController: "evenkeel-controller", ReportingInstance: "evenkeel-controller-1",
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--kubeconfig="+cluster.AdminKubeconfig())
	p.await("/api/clusters/0/feed", func(e event) bool { return e.Rest.Ready && e.Rest.Rights.MayPatch && e.Rest.Rights.MayListNodes })
	log := p.answer("/api/clusters/0/rollouts/logged/log")
	for _, want := range []string{
		`"node":"logged-a","kind":"Warning","reason":"KubeletGivenUp","message":"of the agent","source":"Event"`, `"kind":"Normal","reason":"RolloutStarted","message":"of the controller","source":"Event"`,
		`"kind":"Warning","reason":"Failed","message":"revision 1 of rollout logged was refused: CrashLooped: the kubelet exited 4 times","source":"Outcome"`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in %s", want, log)
		}
	}
	if strings.Contains(log, `"note"`) {
		t.Errorf("something is missing: %s", log)
	}
	if log := p.answer("/api/clusters/0/rollouts/logged/log?node=logged-a"); !strings.Contains(log, "KubeletGivenUp") || strings.Contains(log, "RolloutStarted") {
		t.Errorf("of the node alone: %s", log)
	}
}

func TestAViewerGetsLessAndIsToldOnce(t *testing.T) {
	cm := createRevision(t, "viewed", 1, "maxPods: 7\n")
	createRollout(t, "viewed", "viewed", pods(7), nil)
	createNode(t, "viewed-a", "viewed", "z1")
	createNodeConfig(t, "viewed-a", byRollout("viewed", 1, cm, nil), func(st *v1alpha1.NodeConfigStatus) {
		failing(st, v1alpha1.ReasonCrashLooped, "the kubelet exited 4 times")
	})
	viewer := userOf(t, "page-viewer")
	bind(t, "page-viewer", "evenkeel-view", "nodeconfigs", v1alpha1.GroupName)
	p := serve(t, "--kubeconfig="+viewer)
	p.await("/api/clusters/0/feed", func(e event) bool {
		return e.Rest.Ready && len(e.Rest.Trouble) == 0 && !e.Rest.Rights.MayPatch && strings.HasPrefix(e.Rest.Rights.Words, "Read only, and without zones")
	})
	if node := p.answer("/api/clusters/0/nodes/viewed-a"); !strings.Contains(node, `"health":"Failed"`) || strings.Contains(node, "does not exist") {
		t.Errorf("the node is %s", node)
	}
	if log := p.answer("/api/clusters/0/rollouts/viewed/log"); !strings.Contains(log, `"reason":"Failed"`) || !strings.Contains(log, "you are not allowed to list them in the namespace default") {
		t.Errorf("the log is %s", log)
	}
	if timeline := p.answer("/api/clusters/0/rollouts/viewed/timeline"); !strings.Contains(timeline, `"estimate":null`) {
		t.Errorf("the timeline is %s", timeline)
	}
}
