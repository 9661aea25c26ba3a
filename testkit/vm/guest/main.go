// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command guest runs in a virtual machine of testkit/vm: it executes scripts
// and transfers files for the host, as root. It serves HTTP on the only network
// that the machine has, which is that of the QEMU process.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/vm/guest/protocol"
)

func main() {
	server := &http.Server{Addr: ":" + strconv.Itoa(protocol.Port), Handler: handler(), ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(os.Stderr, "vm-guest:", server.ListenAndServe())
	os.Exit(1)
}

func handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, serve := range map[string]http.HandlerFunc{"POST " + protocol.RunPath: run, "PUT " + protocol.FilePath: put, "GET " + protocol.BootPath: bootID} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := must.Try(func() { serve(w, r) }); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}

	return mux
}

func bootID(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write(must.Get(os.ReadFile("/proc/sys/kernel/random/boot_id"))) // fails only without a reader
}

// run executes the body with sh. If the host closes the connection, the script
// and its children are killed.
func run(w http.ResponseWriter, r *http.Request) {
	script := must.Get(io.ReadAll(r.Body))
	cmd := exec.CommandContext(r.Context(), "/bin/sh", "-c", string(script))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for programs that the script leaves behind with its output
	cmd.Env = append(os.Environ(), "HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		must.OK(err)
	}

	_ = json.NewEncoder(w).Encode(protocol.Result{Output: string(out), Code: cmd.ProcessState.ExitCode()}) // fails only without a reader
}

// put replaces a file, and answers when it is on the disk.
func put(_ http.ResponseWriter, r *http.Request) {
	path, mode := r.URL.Query().Get("path"), must.Get(strconv.ParseUint(r.URL.Query().Get("mode"), 8, 32))
	must.OK(os.MkdirAll(filepath.Dir(path), 0o755))
	f := must.Get(os.CreateTemp(filepath.Dir(path), ".vm-"))
	defer os.Remove(f.Name())
	_, err := io.Copy(f, r.Body)
	must.OK(errors.Join(err, f.Chmod(os.FileMode(mode)), f.Sync(), f.Close()))
	must.OK(os.Rename(f.Name(), path))
	syscall.Sync() // also new directories
}
