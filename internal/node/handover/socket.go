// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// listenUnix makes a socket that only its owner may use, and its directory. It replaces a socket that an ended agent left
// behind.
func listenUnix(path string) (net.Listener, error) {
	wrap := func(err error) error { return fmt.Errorf("--probe-socket: %w", err) }
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, wrap(err)
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, wrap(err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("--probe-socket: %s exists and is not a socket: choose another path", path)
	default:
		if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("--probe-socket: another process answers on %s: give each agent its own path", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, wrap(err)
		}
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, wrap(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = listener.Close()
		return nil, wrap(err)
	}
	removeStaleSockets(filepath.Dir(path))
	return listener, nil
}

// listenDelay is much longer than a process takes to listen on a socket that it has made.
const listenDelay = time.Minute

// removeStaleSockets removes the probe sockets of agents that were killed from a directory that has only sockets: each pod has
// a socket of its own, and no later pod uses it again.
func removeStaleSockets(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSocket {
			return // the directory may belong to another program
		}
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil || !isOwn(path, fs.ModeSocket|0o600) || time.Since(info.ModTime()) < listenDelay {
			continue
		}
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
}

// isOwn reports whether the file at path belongs to this user and has this mode.
func isOwn(path string, mode fs.FileMode) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != mode {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
