package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/program"
)

const (
	// defaultGiveUp is several times what a bad configuration needs to be rolled back.
	defaultGiveUp = 5 * time.Minute
	// firstPause is how long an agent that gave the node up leaves it alone, and twice as long each time in a row.
	firstPause   = time.Hour
	longestPause = 24 * time.Hour
)

// giveUpAfter is --give-up-after: a trial must have had the time to roll back.
func (o *options) giveUpAfter() time.Duration {
	if o.given("give-up-after") || o.giveUp == 0 {
		return o.giveUp
	}
	return max(o.giveUp, 2*o.healthTimeout)
}

// attempt is a self-hosted agent with its kubelet, in one boot: what gave the node up is not to take it again at once, for
// the bootstrap kubelet, healthy again, starts its container anew.
type attempt struct {
	dir, by string // no dir: nothing is remembered
	log     *slog.Logger
}

func (o *options) attempt(host *agent.HostKubelet, bootID string, log *slog.Logger) (attempt, error) {
	identity, err := host.Identity()
	if err != nil {
		return attempt{}, err
	}
	all := strings.Join(append([]string{bootID, version, identity, host.LocalDigest()}, os.Args[1:]...), "\x00")
	return attempt{o.dynamicConfigDir, fmt.Sprintf("%x", sha256.Sum256([]byte(all))), log}, nil
}

// mayTry returns an error if this attempt gave the node up not long ago.
func (a attempt) mayTry(now time.Time) error {
	if a.dir == "" {
		return nil
	}
	last, err := checkpoint.LastGivenUp(atomicfile.OS{}, a.dir)
	if err != nil {
		a.log.Warn("cannot tell whether this kubelet has failed before", "err", err)
	}
	again := last.At.Add(pause(last.Times))
	if last.By != a.by || now.Before(last.At) || !now.Before(again) {
		return nil
	}
	return program.Coded(exitGaveUp, fmt.Errorf("this kubelet had the node and was never healthy, so that it was given up at %s: not tried again before %s; "+
		"mend its flags, image or local configuration, or delete the pod to try now", last.At.Format(time.RFC3339), again.Format(time.RFC3339)))
}

// pause is how long an attempt that gave up so often leaves the node alone.
func pause(times int) time.Duration {
	return min(firstPause<<min(max(times-1, 0), 10), longestPause)
}

// ended remembers how the attempt went, while the node is still this agent's, and returns the error to end with.
func (a attempt) ended(err error, now time.Time) error {
	gaveUp := errors.Is(err, agent.ErrGivesBack)
	if a.dir != "" {
		if err := a.remember(gaveUp, now); err != nil {
			a.log.Error("cannot remember whether this kubelet gave the node up; it may take it again soon", "err", err)
		}
	}
	if !gaveUp {
		return err
	}
	return program.Coded(exitGaveUp, fmt.Errorf("%w: the node is left to the agent that waits for its lock; see what the kubelet says above", err))
}

func (a attempt) remember(gaveUp bool, now time.Time) error {
	last, err := checkpoint.LastGivenUp(atomicfile.OS{}, a.dir)
	switch {
	case err == nil && !gaveUp && last == checkpoint.GivenUp{}:
		return nil
	case !gaveUp:
		return checkpoint.ClearGivenUp(atomicfile.OS{}, a.dir)
	case last.By != a.by:
		last = checkpoint.GivenUp{By: a.by}
	}
	last.At, last.Times = now.UTC(), last.Times+1
	return checkpoint.SetGivenUp(atomicfile.OS{}, a.dir, last)
}
