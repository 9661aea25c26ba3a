package handover

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
)

const (
	// firstPause is how long an agent that gave the node up leaves it alone, and twice as long each time in a row.
	firstPause   = time.Hour
	longestPause = 24 * time.Hour
)

// Attempt is a self-hosted agent with its kubelet, in one boot: what gave the node up is not to take it again at once, for
// the bootstrap kubelet, healthy again, starts its container anew.
type Attempt struct {
	dir, by string // no dir: nothing is remembered
	log     *slog.Logger
}

// NewAttempt returns the attempt that is told from others by what it is made of.
func NewAttempt(dir string, log *slog.Logger, of ...string) Attempt {
	return Attempt{dir, fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(of, "\x00")))), log}
}

// MayTry returns an error if this attempt gave the node up not long ago.
func (a Attempt) MayTry(now time.Time) error {
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
	return fail(GaveUp, fmt.Errorf("this kubelet had the node and was never healthy, so that it was given up at %s: not tried again before %s; "+
		"mend its flags, image or local configuration, or delete the pod to try now", last.At.Format(time.RFC3339), again.Format(time.RFC3339)))
}

// pause is how long an attempt that gave up so often leaves the node alone.
func pause(times int) time.Duration {
	return min(firstPause<<min(max(times-1, 0), 10), longestPause)
}

// Ended remembers how the attempt went, while the node is still this agent's, and returns the error to end with.
func (a Attempt) Ended(err error, now time.Time) error {
	gaveUp := errors.Is(err, agent.ErrGivesBack)
	if a.dir != "" {
		if err := a.remember(gaveUp, now); err != nil {
			a.log.Error("cannot remember whether this kubelet gave the node up; it may take it again soon", "err", err)
		}
	}
	if !gaveUp {
		return err
	}
	return fail(GaveUp, fmt.Errorf("%w: the node is left to the agent that waits for its lock; see what the kubelet says above", err))
}

func (a Attempt) remember(gaveUp bool, now time.Time) error {
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
