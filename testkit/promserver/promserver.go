// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promserver runs a real Prometheus for tests: a program of Debian's
// package in bin/prometheus, or one in $PATH.
package promserver

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
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
	URL string
	log string
	cmd *exec.Cmd

	done <-chan struct{}
}

// Start runs a Prometheus and returns when it answers. files are its files in a
// directory, by name, and one of them is prometheus.yaml.
func Start(binary, dir string, files map[string]string) (_ *Server, err error) {
	defer must.Catch(&err)

	for name, text := range files {
		must.OK(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}

	address := must.Get(localcluster.FreeAddress())
	s := &Server{URL: "http://" + address, log: filepath.Join(dir, "log")}
	log := must.Get(os.Create(s.log))
	defer log.Close()
	s.cmd = exec.Command(binary, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--storage.tsdb.retention.size=64MB")
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.done = must.Get(localcluster.StartTied(s.cmd))
	if err := s.ready(); err != nil {
		return nil, errors.Join(err, s.Stop())
	}

	return s, nil
}

// ready waits until the server answers.
func (s *Server) ready() error {
	for deadline := time.Now().Add(time.Minute); ; {
		if r, err := http.Get(s.URL + "/-/ready"); err == nil {
			_ = r.Body.Close() // only the status matters
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}

		select {
		case <-s.done:
			return errors.New("prometheus has ended")
		case <-time.After(50 * time.Millisecond):
		}

		if time.Now().After(deadline) {
			return errors.New("prometheus is not ready within a minute")
		}
	}
}

// Stop stops the server. The error has its log if it did not end as asked.
func (s *Server) Stop() error {
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.done
	if err == nil && s.cmd.ProcessState.Success() {
		return nil
	}

	text, _ := os.ReadFile(s.log)

	return fmt.Errorf("prometheus: %v, %s\n%s", err, s.cmd.ProcessState, text)
}
