package hostns

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// CommandLine is a command line with programs of a container's image: AGENT [FLAGS] -- KUBELET [FLAGS], or AGENT COMMAND
// [ARGS]. Its programs are open, so that they can be copied to the host.
type CommandLine struct {
	args     []string
	at       []int // the places of the programs in args
	programs []*Program
}

// programsOf returns the places of the programs in a command line; none if it is not a CommandLine.
func programsOf(args []string) []int {
	second := slices.Index(args, "--")
	if second != 0 && len(args) > 1 && args[1] != "" && args[1][0] != '-' {
		return []int{0}
	}
	if second >= 1 && second+1 < len(args) {
		return []int{0, second + 1}
	}
	return nil
}

// IsCommandLine reports whether OpenCommandLine takes these arguments.
func IsCommandLine(args []string) bool { return programsOf(args) != nil }

// OpenCommandLine opens the programs of a command line. The error names the program that cannot be used.
func OpenCommandLine(args []string) (*CommandLine, error) {
	c := &CommandLine{args: slices.Clone(args), at: programsOf(args)}
	for _, i := range c.at {
		p, err := OpenProgram(args[i])
		if err != nil {
			c.Close()
			return nil, err
		}
		c.programs = append(c.programs, p)
	}
	return c, nil
}

// Close closes the programs.
func (c *CommandLine) Close() {
	for _, p := range c.programs {
		_ = p.Close()
	}
}

// startReturns is what the runtime gets to tell the node's kubelet that this container has started. A bootstrap kubelet that
// is asked for the node before leaves in the middle of that request, and the runtime takes the container away.
const startReturns = 2 * time.Second

// Target is where a command line goes on.
type Target struct {
	BinDir string // directory on the host for the copies of the programs
	Keep   int    // how many copies of each program to keep
	// Needed returns the copies on the host that must stay beside those, such as those that a unit names.
	Needed func() (needed func(path string) bool, err error)
	Log    *slog.Logger
}

// Become enters the host's namespaces, copies the programs there, and replaces this process by the command line. It returns
// only an error.
func (c *CommandLine) Become(t Target) error {
	begin := time.Now()
	if err := enterFirst(); err != nil {
		return err
	}
	bin, err := OpenBin(filepath.Clean(t.BinDir))
	if err != nil {
		return err
	}
	defer bin.Close()
	args := slices.Clone(c.args)
	for k, i := range c.at {
		if args[i], err = bin.Put(c.programs[k]); err != nil {
			return err
		}
	}
	needed, err := t.Needed()
	if err == nil {
		err = bin.Prune(t.Keep, needed, c.programs...)
	}
	if err != nil {
		t.Log.Warn("cannot remove old copies of programs", "err", err)
	}
	if len(c.at) > 1 {
		t.Log.Info("going on on the host", "agent", args[0], "kubelet", args[c.at[1]])
		time.Sleep(startReturns - time.Since(begin)) // it will ask for the node
	} else {
		t.Log.Info("going on on the host", "agent", args[0], "command", args[1])
	}
	err = syscall.Exec(args[0], args, Environ(os.Environ()))
	return fmt.Errorf("run %s on the host (it must need no libraries of the image's): %w", args[0], err)
}

// enterFirst takes this goroutine to the namespaces of the host's first process.
func enterFirst() error {
	if err := CheckPIDs(os.Getenv("KUBERNETES_SERVICE_HOST") != ""); err != nil {
		return err
	}
	host, err := Open(First)
	if err != nil {
		return err
	}
	defer host.Close()
	return host.Enter()
}
