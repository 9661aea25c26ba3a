// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

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
