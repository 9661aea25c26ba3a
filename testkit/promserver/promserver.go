// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promserver runs a real Prometheus for tests: a program of Debian's
// package in bin/prometheus, or one in $PATH.
package promserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// Path returns the path of prometheus or promtool. root is the directory of the
// project. The error says how to get it.
func Path(root, name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}

	path, err := filepath.Abs(filepath.Join(root, "bin/prometheus", name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Errorf("there is no %s: make prometheus: %w", name, err)
	}

	return path, nil
}

// Server is a running Prometheus. It dies with the calling process.
type Server struct {
	URL     string
	process *localcluster.Process
}

// Start runs a Prometheus and returns when it answers. files are its files in a
// directory, by name, and one of them is prometheus.yaml.
func Start(binary, dir string, files map[string]string) (_ *Server, err error) {
	defer must.Catch(&err)

	for name, text := range files {
		must.OK(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}

	address := must.Get(localcluster.FreeAddress())
	cmd := exec.Command(binary, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--storage.tsdb.retention.size=64MB")
	s := &Server{"http://" + address, must.Get(localcluster.StartProcess("prometheus", filepath.Join(dir, "log"), cmd))}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = s.process.Wait(ctx, func(ctx context.Context) error { return localcluster.Probe(ctx, s.URL+"/-/ready") })
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}

	return s, nil
}

// Stop stops the server. The error has its log if it did not end as asked.
func (s *Server) Stop() error {
	err := s.process.Stop(time.Minute)
	if state := s.process.Cmd.ProcessState; err == nil && !state.Success() {
		err = fmt.Errorf("prometheus: %s\n%s", state, s.process.Said())
	}

	return err
}
