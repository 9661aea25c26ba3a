package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/bed"
)

// machine is a containerd with its own PID namespace and mount namespace. A container with hostPID sees these, and not
// those of the machine that runs the test.
type machine struct {
	t     *testing.T
	dir   string // seen inside and outside
	alone string // a directory whose content is seen inside only
	first int    // its first process, as it is seen outside
}

const machineName = "evk-on-host"

func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can run containerd")
	}
	for _, program := range []string{"containerd", "ctr", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("no container can run here: ", err)
		}
	}
	dir := t.TempDir()
	config := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = %q\n",
		dir+"/root", dir+"/state", dir+"/containerd.sock")
	if err := os.WriteFile(dir+"/containerd.toml", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + machineName)
		for _, dir := range append(groups, "/sys/fs/cgroup/"+machineName) {
			inside, _ := filepath.Glob(dir + "/*/cgroup.procs")
			for _, file := range append(inside, dir+"/cgroup.procs") {
				_ = os.Remove(filepath.Dir(file))
			}
		}
	})
	return boot(t, dir)
}

// boot starts a machine with the containerd that is configured in dir, and what else is to run there. The first process
// waits for what others leave behind, and starts again what has ended, as an init system does.
func boot(t *testing.T, dir string, argv ...string) *machine {
	t.Helper()
	m := &machine{t: t, dir: dir, alone: filepath.Join(dir, "alone")}
	log, err := os.Create(dir + "/machine.log")
	if err := errors.Join(err, os.Mkdir(m.alone, 0o755)); err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-ec", `mount --make-rprivate /; mount -t proc none /proc
		mount -t tmpfs -o mode=755 none "$0/alone"; echo the host >"$0/alone/file"
		containerd --config "$0/containerd.toml" &
		if [ $# -gt 0 ]; then while :; do "$@" || true; sleep 1; done & fi
		while :; do sleep 1; done`, dir}, argv...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.first = cmd.Process.Pid
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // and with it everything inside
		_ = cmd.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("%s", said[max(0, len(said)-4000):])
		}
	})
	m.eventually("containerd answers", func(ctx context.Context) error { return m.ctr(ctx, "version").Run() })
	return m
}

func (m *machine) eventually(what string, check func(context.Context) error) {
	m.t.Helper()
	if err := bed.Eventually(m.t.Context(), patience, check); err != nil {
		m.t.Fatalf("%s: %v", what, err)
	}
}

func (m *machine) ctr(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ctr", append([]string{"--address=" + m.dir + "/containerd.sock", "--namespace=" + machineName}, args...)...)
}

// inside runs a command as a process of the machine.
func (m *machine) inside(args ...string) string {
	m.t.Helper()
	cmd := exec.Command("nsenter", append([]string{fmt.Sprintf("--target=%d", m.first), "--pid", "--mount"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("%q: %v: %s", args, err, out)
	}
	return string(out)
}

// processes are the command lines of all that run inside.
func (m *machine) processes() string {
	return m.inside("sh", "-c", `for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline; echo; done 2>/dev/null; true`)
}

// container is a running container. When ended is closed, said holds its output.
type container struct {
	said  bytes.Buffer
	ended chan struct{}
	err   error
	code  int
}

// run runs a container of these files, with the real evenkeel-agent among them.
func (m *machine) run(name string, files map[string]string, flags []string, argv ...string) *container {
	m.t.Helper()
	root := filepath.Join(m.dir, name)
	if err := os.Mkdir(root, 0o755); err != nil {
		m.t.Fatal(err)
	}
	agent, err := os.ReadFile("../../bin/evenkeel-agent")
	if err != nil {
		m.t.Fatalf("%v; run make build", err)
	}
	files["evenkeel-agent"] = string(agent)
	for file, content := range files {
		if err := os.WriteFile(filepath.Join(root, file), []byte(content), 0o755); err != nil {
			m.t.Fatal(err)
		}
	}
	flags = append([]string{"run", "--rootfs", "--env=KUBERNETES_SERVICE_HOST=10.0.0.1"}, flags...)
	cmd := m.ctr(m.t.Context(), append(append(flags, root, name), argv...)...)
	c := &container{ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &c.said, &c.said
	go func() {
		defer close(c.ended)
		c.err = cmd.Run()
		c.code = cmd.ProcessState.ExitCode()
	}()
	return c
}

// hostAgent replaces the agent: it prints where it runs, mounts a file system, and leaves a process behind.
const hostAgent = `#!/bin/sh
alone=${1#--alone=}
{
	echo "in $(cat "$alone/file"), process $$ $*"
	mkdir -p "$alone/mounted"; mount -t tmpfs made-by-the-pod "$alone/mounted"; echo hello >"$alone/mounted/file"
} >"$alone/said" 2>&1
trap 'echo told to stop; exit 0' TERM
setsid sleep 4711 &
touch "$alone/ready"
while :; do sleep 600 & wait $!; done
`

// hostPIDs is hostPID: true.
const hostPIDs = "--with-ns=pid:/proc/1/ns/pid"

func TestAnAgentInAContainerRunsOnTheHost(t *testing.T) {
	m := newMachine(t)
	bin := m.alone + "/bin"
	c := m.run("pod", map[string]string{"agent": hostAgent, "kubelet": "#!/bin/sh\n"}, []string{"--privileged", hostPIDs},
		"/evenkeel-agent", "on-host", "--bin-dir="+bin, "--", "/agent", "--alone="+m.alone, "--", "/kubelet", "--v=2")
	m.eventually("it is on the host", func(context.Context) error {
		select {
		case <-c.ended:
			t.Fatalf("the container has ended with %v and said %s", c.err, c.said.String())
		default:
		}
		_, err := os.Stat(fmt.Sprintf("/proc/%d/root%s/ready", m.first, m.alone))
		return err
	})

	listed, err := m.ctr(t.Context(), "tasks", "ls").Output()
	if err != nil {
		t.Fatal(err)
	}
	var pid string // of the container's first process, as containerd knows it
	for line := range strings.Lines(string(listed)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "pod" {
			pid = fields[1]
		}
	}
	kubelet := strings.TrimSpace(m.inside("sh", "-c", "ls "+bin+"/kubelet-*"))
	if want, got := fmt.Sprintf("in the host, process %s --alone=%s -- %s --v=2\n", pid, m.alone, kubelet), m.inside("cat", m.alone+"/said"); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if got := m.inside("cat", m.alone+"/mounted/file"); got != "hello\n" {
		t.Errorf("its mount holds %q on the host", got)
	}
	if got := m.inside("cat", "/proc/"+pid+"/cgroup"); !strings.Contains(got, machineName+"/pod") {
		t.Errorf("it has left the cgroup of its container:\n%s", got)
	}
	if got := m.processes(); !strings.Contains(got, "sleep 4711") {
		t.Errorf("it has left no process behind:\n%s", got)
	}

	if out, err := m.ctr(t.Context(), "tasks", "kill", "--signal=SIGTERM", "pod").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if <-c.ended; c.err != nil || !strings.HasSuffix(c.said.String(), "told to stop\n") {
		t.Errorf("the container ended with %v, and said %s", c.err, c.said.String())
	}
	if left := m.processes(); strings.Contains(left, "sleep 4711") {
		t.Errorf("its process outlives the container:\n%s", left)
	}
	if got := m.inside("cat", m.alone+"/mounted/file"); got != "hello\n" {
		t.Errorf("its mount is gone with the container: %q", got)
	}
}

func TestAContainerWithoutHostAccessNamesWhatIsMissing(t *testing.T) {
	m := newMachine(t)
	for name, tt := range map[string]struct {
		flags []string
		words string
	}{
		"own-processes":  {[]string{"--privileged"}, "this process (1) is the first of a container, not of the node; the pod needs hostPID: true"},
		"not-privileged": {[]string{hostPIDs}, "process 1 cannot be inspected; the container needs securityContext.privileged: true"},
	} {
		t.Run(name, func(t *testing.T) {
			c := m.run(name, map[string]string{"agent": hostAgent, "kubelet": "#!/bin/sh\n"}, tt.flags,
				"/evenkeel-agent", "on-host", "--bin-dir="+m.alone+"/bin", "--", "/agent", m.alone, "--", "/kubelet")
			if <-c.ended; c.code != 6 || !strings.Contains(c.said.String(), tt.words) {
				t.Errorf("it ended with %v and said %s, want exit status 6 and %q", c.err, c.said.String(), tt.words)
			}
			if got := m.inside("ls", m.alone); got != "file\n" {
				t.Errorf("the host's directory holds %q", got)
			}
		})
	}
}

func TestAnAgentInAPodRunsOnItsHost(t *testing.T) {
	n := newNode(t, "on-host")
	const image = "evenkeel.dev/on-host:1"
	if err := n.Node.ImportImage(t.Context(), image, "/evenkeel-agent", n.Binary); err != nil {
		t.Fatal(err)
	}
	programs := filepath.Join(n.Node.Dir(), "programs")
	for name, content := range map[string]string{"agent": hostAgent, "kubelet": "#!/bin/sh\n"} {
		if err := errors.Join(os.MkdirAll(programs, 0o755), os.WriteFile(filepath.Join(programs, name), []byte(content), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	// The node's containerd and stock kubelet, as processes of a machine of their own.
	if err := n.Node.StopRuntime(); err != nil {
		t.Fatal(err)
	}
	m := boot(t, n.Node.Dir(), append([]string{n.Node.KubeletPath()}, n.Node.KubeletArgs()...)...)
	n.eventually("the node is Ready", n.ready)

	privileged, automount := true, false
	pods := n.Kube.CoreV1().Pods("default")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "on-host"},
		Spec: corev1.PodSpec{
			NodeName: n.Node.Name(), HostPID: true, HostNetwork: true, AutomountServiceAccountToken: &automount,
			Volumes: []corev1.Volume{{Name: "programs", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: programs}}}},
			Containers: []corev1.Container{{
				Name: "kubelet", Image: image,
				Command:         []string{"/evenkeel-agent", "on-host", "--bin-dir=" + m.alone + "/bin", "--", "/programs/agent", "--alone=" + m.alone, "--", "/programs/kubelet"},
				SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
				VolumeMounts:    []corev1.VolumeMount{{Name: "programs", MountPath: "/programs"}},
			}},
		},
	}
	pod, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := fmt.Sprintf("/proc/%d/root%s", m.first, m.alone)
	n.eventually("it is on the host", func(context.Context) error {
		_, err := os.Stat(seen + "/ready")
		return err
	})
	said := m.inside("cat", m.alone+"/said")
	var pid int
	if _, err := fmt.Sscanf(said, "in the host, process %d --alone="+m.alone+" -- "+m.alone+"/bin/kubelet-", &pid); err != nil {
		t.Fatalf("it says %q: %v", said, err)
	}
	if got := m.inside("cat", fmt.Sprintf("/proc/%d/cgroup", pid)); !strings.Contains(got, "pod"+string(pod.UID)) {
		t.Errorf("it is not in the cgroup of its pod:\n%s", got)
	}
	if got := m.inside("cat", m.alone+"/mounted/file"); got != "hello\n" {
		t.Errorf("its mount holds %q on the host", got)
	}
	if err := pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n.eventually("the pod has gone", func(ctx context.Context) error {
		if _, err := pods.Get(ctx, pod.Name, getOptions); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is still there: %v", err)
		}
		return nil
	})
	if got := m.processes(); strings.Contains(got, m.alone+" -- ") || strings.Contains(got, "sleep 4711") {
		t.Errorf("processes of the pod live on:\n%s", got)
	}
	if got := m.inside("cat", m.alone+"/mounted/file"); got != "hello\n" {
		t.Errorf("its mount is gone with the pod: %q", got)
	}
}
