package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// child is a running program that dies with this process.
type child struct {
	name string
	cmd  *exec.Cmd
	log  string
	done <-chan struct{}
}

// start starts a program with its output in a file, and with further environment variables.
func start(log string, env []string, argv ...string) (_ *child, err error) {
	defer must.Catch(&err)

	out := must.Get(os.Create(log))
	defer out.Close()
	c := &child{name: filepath.Base(argv[0]), cmd: exec.Command(argv[0], argv[1:]...), log: log}
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.Env = append(os.Environ(), env...)
	// SIGTERM, so that the program can clean up.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	c.done, err = localcluster.StartTied(c.cmd)
	return c, err
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// says waits until the output contains words.
func (c *child) says(ctx context.Context, text string, within time.Duration) error {
	return eventually(ctx, within, 50*time.Millisecond, func() (err error) {
		defer must.Catch(&err)

		raw := must.Get(os.ReadFile(c.log))
		if bytes.Contains(raw, []byte(text)) {
			return nil
		}
		return fmt.Errorf("%s has not said %q; its last words: %s", c.name, text, raw[max(0, len(raw)-500):])
	}, c.done)
}

// stop ends the program, and returns its error.
func (c *child) stop() error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only if the program has ended
	select {
	case <-c.done:
	case <-time.After(2 * time.Minute):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
	if state := c.cmd.ProcessState; !state.Success() {
		raw, _ := os.ReadFile(c.log)
		return fmt.Errorf("%s: %s: %s", c.name, state, raw[max(0, len(raw)-2000):])
	}
	return nil
}

// eventually calls try until it succeeds, over is closed, or the time is over.
func eventually(ctx context.Context, within, every time.Duration, try func() error, over <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-over:
			return fmt.Errorf("it has ended: %w", err)
		case <-tick.C:
		}
	}
}

// find returns the process of a program with a text on its command line.
func find(name, argument string) (_ int, err error) {
	defer must.Catch(&err)

	all := must.Get(filepath.Glob("/proc/[0-9]*/cmdline"))
	for _, path := range all {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		argv0, rest, _ := bytes.Cut(raw, []byte{0})
		if filepath.Base(string(argv0)) == name && bytes.Contains(rest, []byte(argument)) {
			return strconv.Atoi(filepath.Base(filepath.Dir(path)))
		}
	}
	return 0, errors.New("no process " + name)
}
