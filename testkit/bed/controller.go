package bed

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// Controller is an evenkeel-controller process with only the permissions that config/controller grants.
type Controller struct {
	Log string // log file

	cmd  *exec.Cmd
	done <-chan struct{}
}

// ApplyConfig applies a directory of config/ to the cluster.
func (b *Bed) ApplyConfig(ctx context.Context, name string) error {
	module, err := localcluster.ModuleRoot()
	if err != nil {
		return err
	}
	return b.Cluster.Apply(ctx, filepath.Join(module, "config", name))
}

// Controller starts a controller, and returns when it is ready. It dies with the calling process.
func (b *Bed) Controller(ctx context.Context, flags ...string) (_ *Controller, err error) {
	defer must.Catch(&err)

	binary := must.Get(Program("evenkeel-controller"))
	must.OK(b.ApplyConfig(ctx, "controller"))
	kubeconfig := must.Get(b.Cluster.ClientKubeconfig("system:serviceaccount:evenkeel-system:evenkeel-controller",
		"system:serviceaccounts", "system:serviceaccounts:evenkeel-system"))
	probes := must.Get(localcluster.FreeAddress())
	c := &Controller{Log: filepath.Join(b.Cluster.Dir(), "log", "evenkeel-controller.log")}
	log := must.Get(os.Create(c.Log))
	defer log.Close()
	c.cmd = exec.Command(binary, append([]string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=" + probes, "-v=1",
	}, flags...)...)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.done = must.Get(localcluster.StartTied(c.cmd))
	err = Eventually(ctx, time.Minute, func(ctx context.Context) error {
		return localcluster.Probe(ctx, "http://"+probes+"/readyz")
	})
	if err != nil {
		return nil, errors.Join(err, c.Stop(time.Minute))
	}
	return c, nil
}

// Pid returns the controller's process ID.
func (c *Controller) Pid() int { return c.cmd.Process.Pid }

// Done is closed when the controller has ended.
func (c *Controller) Done() <-chan struct{} { return c.done }

// Stop sends SIGTERM to the controller, and waits for its end. Further calls do nothing.
func (c *Controller) Stop(within time.Duration) error {
	return end("the controller", c.cmd, c.done, within)
}
