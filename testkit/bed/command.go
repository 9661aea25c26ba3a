// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// Evenkeel runs `kubectl evenkeel` as the administrator and returns its exit
// code. It fails if the program does not run.
func (b *Bed) Evenkeel(ctx context.Context, out io.Writer, args ...string) (int, error) {
	binary, err := Program("kubectl-evenkeel")
	if err != nil {
		return 0, err
	}

	return b.asAdmin(exec.CommandContext(ctx, binary, args...), out)
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
func Path() (string, error) {
	module, err := localcluster.ModuleRoot()
	if err != nil {
		return "", err
	}

	bin := filepath.Join(module, "bin")

	return bin + string(filepath.ListSeparator) + filepath.Join(bin, "tools"), nil
}

func (b *Bed) asAdmin(cmd *exec.Cmd, out io.Writer) (int, error) {
	cmd.Env = append(cmd.Environ(), "KUBECONFIG="+b.Cluster.AdminKubeconfig())
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}

	return 0, err
}

// Controller is an evenkeel-controller process with only the permissions that
// config/controller grants.
type Controller struct{ *localcluster.Process }

// ApplyConfig applies a directory of config/ to the cluster.
func (b *Bed) ApplyConfig(ctx context.Context, name string) error {
	module, err := localcluster.ModuleRoot()
	if err != nil {
		return err
	}

	return b.Cluster.Apply(ctx, filepath.Join(module, "config", name))
}

// Controller starts a controller, and returns when it is ready. It dies with
// the calling process.
func (b *Bed) Controller(ctx context.Context, flags ...string) (_ *Controller, err error) {
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

	return &Controller{p}, nil
}
