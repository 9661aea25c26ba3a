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
	mux.HandleFunc("POST "+protocol.RunPath, run)
	mux.HandleFunc("PUT "+protocol.FilePath, put)
	mux.HandleFunc("GET "+protocol.BootPath, bootID)

	return mux
}

func bootID(w http.ResponseWriter, _ *http.Request) {
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}

	_, _ = w.Write(content) // fails only without a reader
}

// run executes the body with sh. If the host closes the connection, the script
// and its children are killed.
func run(w http.ResponseWriter, r *http.Request) {
	script, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	cmd := exec.CommandContext(r.Context(), "/bin/sh", "-c", string(script))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for programs that the script leaves behind with its output
	cmd.Env = append(os.Environ(), "HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}

	_ = json.NewEncoder(w).Encode(protocol.Result{Output: string(out), Code: cmd.ProcessState.ExitCode()}) // fails only without a reader
}

// put replaces a file, and answers when it is on the disk.
func put(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	mode, err := strconv.ParseUint(query.Get("mode"), 8, 32)
	if err == nil {
		err = write(query.Get("path"), os.FileMode(mode), r.Body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func write(path string, mode os.FileMode, content io.Reader) (err error) {
	defer must.Catch(&err)

	dir := filepath.Dir(path)
	must.OK(os.MkdirAll(dir, 0o755))
	f := must.Get(os.CreateTemp(dir, ".vm-"))
	defer os.Remove(f.Name())
	_, err = io.Copy(f, content)
	must.OK(errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()))
	must.OK(os.Rename(f.Name(), path))
	syscall.Sync() // also new directories

	return nil
}
