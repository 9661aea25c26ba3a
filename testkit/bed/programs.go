// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/procs"
)

// Evenkeel runs `kubectl evenkeel` as the administrator and returns its exit
// code. It fails if the program does not run.
func (b *Bed) Evenkeel(ctx context.Context, out io.Writer, args ...string) (_ int, err error) {
	defer must.Catch(&err)

	return b.asAdmin(exec.CommandContext(ctx, must.Get(Program("kubectl-evenkeel")), args...), out)
}

// Kubectl runs the upstream kubectl as the administrator in a directory, and
// returns its exit code. It finds evenkeel's plugin, like the kubectl of a user
// with bin and bin/tools in the PATH. It fails if the program does not run.
func (b *Bed) Kubectl(ctx context.Context, dir string, out io.Writer, args ...string) (_ int, err error) {
	defer must.Catch(&err)

	must.Get(Program("kubectl-evenkeel"))
	path := must.Get(Path())
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.SplitList(path)[1], "kubectl"), args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+path+string(filepath.ListSeparator)+os.Getenv("PATH"))

	return b.asAdmin(cmd, out)
}

// Path returns what a user puts before their PATH to run evenkeel's programs
// and the upstream ones.
func Path() (_ string, err error) {
	defer must.Catch(&err)

	bin := filepath.Join(must.Get(localcluster.ModuleRoot()), "bin")

	return bin + string(filepath.ListSeparator) + filepath.Join(bin, "tools"), nil
}

func (b *Bed) asAdmin(cmd *exec.Cmd, out io.Writer) (int, error) {
	cmd.Env = append(cmd.Environ(), "KUBECONFIG="+b.Cluster.AdminKubeconfig())
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if exit, is := errors.AsType[*exec.ExitError](err); is && exit.Exited() {
		return exit.ExitCode(), nil
	}

	return 0, err
}

// ApplyConfig applies a directory of config/ to the cluster.
func (b *Bed) ApplyConfig(ctx context.Context, name string) (err error) {
	defer must.Catch(&err)

	return b.Cluster.Apply(ctx, filepath.Join(must.Get(localcluster.ModuleRoot()), "config", name))
}

// Controller starts a controller with only the permissions that
// config/controller grants, and returns when it is ready. It dies with the
// calling process.
func (b *Bed) Controller(ctx context.Context, flags ...string) (_ *localcluster.Process, err error) {
	defer must.Catch(&err)

	binary := must.Get(Program("evenkeel-controller"))
	must.OK(b.ApplyConfig(ctx, "controller"))
	kubeconfig := must.Get(b.Cluster.ClientKubeconfig("system:serviceaccount:evenkeel-system:evenkeel-controller",
		"system:serviceaccounts", "system:serviceaccounts:evenkeel-system"))
	probes := must.Get(localcluster.FreeAddress())
	log := filepath.Join(b.Cluster.Dir(), "log", "evenkeel-controller.log")
	p := must.Get(localcluster.StartProcess("the controller", log, exec.Command(binary, append([]string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=" + probes, "-v=1",
	}, flags...)...)))
	err = Eventually(ctx, time.Minute, func(ctx context.Context) error {
		return localcluster.Probe(ctx, "http://"+probes+"/readyz")
	})
	if err != nil {
		return nil, errors.Join(err, p.Stop(time.Minute))
	}

	return p, nil
}

// Agent is an evenkeel-agent process on the node.
type Agent struct {
	Flags   []string // of the agent, in addition to those in Argv
	Kubelet []string // the kubelet's command line, path first
	Dir     string   // --dynamic-config-dir
	Log     string   // log file of agent and kubelet
	Listen  string
	Env     []string // in addition to the test's own

	binary  string
	runDir  string
	process *localcluster.Process // nil before Start
}

// Agent returns an agent for the node, with its own dynamic directory and log.
// It is not started yet.
func (b *Bed) Agent(flags ...string) (_ *Agent, err error) {
	defer must.Catch(&err)

	runDir := filepath.Join(b.Node.Dir(), "run-evenkeel")
	must.OK(os.MkdirAll(runDir, 0o700))

	return &Agent{
		Flags:   flags,
		Kubelet: append([]string{b.Node.KubeletPath()}, b.Node.KubeletArgs()...),
		Dir:     filepath.Join(b.Node.Dir(), "evenkeel"),
		Log:     filepath.Join(b.Node.Dir(), "evenkeel.log"),
		Listen:  must.Get(localcluster.FreeAddress()),
		binary:  b.Binary,
		runDir:  runDir,
	}, nil
}

// Argv returns the agent's command line.
func (a *Agent) Argv() []string {
	return slices.Concat([]string{a.binary, "--listen=" + a.Listen, "--dynamic-config-dir=" + a.Dir}, a.Flags, []string{"--"}, a.Kubelet)
}

// Start starts the agent. It dies with the calling process.
func (a *Agent) Start() (err error) {
	defer must.Catch(&err)

	must.Get(Program("evenkeel-agent"))
	argv := a.Argv()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "NOTIFY_SOCKET=") }), "RUNTIME_DIRECTORY="+a.runDir)
	cmd.Env = append(cmd.Env, a.Env...)
	a.process, err = localcluster.StartProcess("the agent", a.Log, cmd)

	return err
}

// Pid returns the agent's process ID.
func (a *Agent) Pid() int { return a.process.Pid() }

// Done is closed when the agent has ended; nil if it was never started.
func (a *Agent) Done() <-chan struct{} {
	if a.process == nil {
		return nil
	}

	return a.process.Done
}

// ExitCode returns the agent's exit code after Done.
func (a *Agent) ExitCode() int { return a.process.Cmd.ProcessState.ExitCode() }

// Stop sends SIGTERM to the agent, as an init system does, and waits for its
// end.
func (a *Agent) Stop(within time.Duration) error { return a.process.Stop(within) }

// Kill kills the agent with SIGKILL, and waits for its end.
func (a *Agent) Kill() { a.process.Kill() }

// Children returns the agent's children: the kubelet and running dry runs, but
// not the process that copies the kubelet's log.
func (a *Agent) Children() []procs.Process {
	return slices.DeleteFunc(procs.Children("/proc", a.Pid()), func(p procs.Process) bool { return p.Argv[0] == "evenkeel-log" })
}

// RunningKubelet returns the agent's kubelet. Unlike a dry run, the kubelet has
// a kubeconfig.
func (a *Agent) RunningKubelet() (procs.Process, error) {
	kubelets := slices.DeleteFunc(a.Children(), func(p procs.Process) bool {
		return !slices.ContainsFunc(p.Argv, func(arg string) bool { return strings.HasPrefix(arg, "--kubeconfig=") })
	})
	if len(kubelets) != 1 {
		return procs.Process{}, fmt.Errorf("the agent runs %d kubelets: %v", len(kubelets), kubelets)
	}

	return kubelets[0], nil
}

// KubeletPID returns the process ID of the agent's kubelet.
func (a *Agent) KubeletPID() (int, error) {
	p, err := a.RunningKubelet()
	return p.PID, err
}

// Run runs another command of the agent's program, and returns its output and
// exit code.
func (a *Agent) Run(ctx context.Context, stdin string, args ...string) (string, int) {
	cmd := exec.CommandContext(ctx, a.binary, args...)
	cmd.Stdin, cmd.Env = strings.NewReader(stdin), append(os.Environ(), a.Env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil { // it does not run at all
		return err.Error(), -1
	}

	return string(out), cmd.ProcessState.ExitCode()
}

// Proxy starts a proxy between an agent and the API server, with the node's own
// identity.
func (b *Bed) Proxy(wrap func(next http.Handler) http.Handler) (_ *localcluster.Proxy, err error) {
	defer must.Catch(&err)

	config := must.Get(clientcmd.BuildConfigFromFlags("", b.Node.Kubeconfig()))

	return localcluster.StartProxy(config, filepath.Join(b.Node.Dir(), "proxy.kubeconfig"), wrap)
}
