// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/transcript"
)

// TestTranscripts runs testdata/*.txt. Each command changes the node; the
// output below it shows what the node does, remembers and reports. Run with -rewrite
// after a change, and review the difference.
func TestTranscripts(t *testing.T) {
	transcript.Run(t, func(t *testing.T) transcript.Command {
		n := newNodeSim(t)
		return func(t *testing.T, td *datadriven.TestData, out *strings.Builder) (err error) {
			defer must.Catch(&err)

			n.t = t
			out.WriteString(n.run(td))
			return nil
		}
	})
}

// do runs commands of the transcripts.
func (n *nodeSim) do(lines ...string) {
	for _, line := range lines {
		command, args, err := datadriven.ParseLine(line)
		n.must(err == nil && commands[command] != nil, "%s: %v", line, err)
		n.run(&datadriven.TestData{Cmd: command, CmdArgs: args})
	}
}

// provenNode returns a node with a last-known-good configuration (UID: g), on
// which the commands were run.
func provenNode(t *testing.T, lines ...string) *nodeSim {
	n := newNodeSim(t)
	n.do(proven)
	n.do(lines...)
	return n
}

// proven makes a node with a last-known-good configuration (UID: g).
const proven = "node proven"

// commands are the commands of the transcripts.
var commands = map[string]func(*nodeSim, *datadriven.TestData){
	"node": func(n *nodeSim, td *datadriven.TestData) { // a new one, that has run its local configuration for a while
		*n = *newNodeSim(n.t)
		n.flags(td)
		n.healthy = true
		n.start()
		n.pass(5 * time.Second)
		if td.HasArg("proven") { // with a last-known-good configuration
			n.intent = Intent{Kind: Assigned, Config: Config{Revision: "g", ConfigRevision: v1alpha1.ConfigRevision{UID: "g", Namespace: "evenkeel-system", Name: "g-config", SHA256: "p0"}}}
			n.converge()
			n.pass(10*time.Minute + 5*time.Second)
		}

		n.trace = nil
	},
	"new-node": func(n *nodeSim, td *datadriven.TestData) { // its agent was not started yet
		*n = *newNodeSim(n.t)
		n.flags(td)
	},
	"flags": (*nodeSim).flags,

	// Assignments.
	"assign": func(n *nodeSim, td *datadriven.TestData) {
		c := Config{
			Revision: words(td, "uid"), ConfigRevision: v1alpha1.ConfigRevision{UID: types.UID(words(td, "uid")), Namespace: "evenkeel-system", Name: words(td, "uid") + "-config", SHA256: words(td, "payload")},
		}
		c = c.WithValues(words(td, "values")) // of its rules, on the machine as it is now
		if td.HasArg("attempt") {
			c.Rollout = v1alpha1.RolloutReference{Name: "workers", Revision: 1, Attempt: int64(number(td, "attempt"))}
		}

		c.AssignedBy = words(td, "by")
		c.Dropin = td.HasArg("dropin")
		c.RequestedTerms.AllowPodLoss = td.HasArg("allow-pod-loss")
		if td.HasArg("trial") {
			c.RequestedTerms.Duration.Duration = duration(td, "trial")
		}
		if td.HasArg("for") {
			c.End.Requested, c.End.After.Duration = words(td, "request"), duration(td, "for")
		}
		if td.HasArg("threshold") {
			c.RequestedTerms.Starts = number(td, "threshold") + 1
		}

		n.intent = Intent{Kind: Assigned, Config: c, Notice: words(td, "notice")}
		if td.HasArg("revoked") { // in the same update
			n.revoke(types.UID(words(td, "revoked")))
		}
	},
	"local": func(n *nodeSim, _ *datadriven.TestData) { n.intent = Intent{Kind: Nil} },
	"unassigned": func(n *nodeSim, td *datadriven.TestData) {
		n.intent = Intent{Kind: Unassigned, Config: Config{AssignedBy: words(td, "by")}, Cause: "nothing is assigned"}
		if td.HasArg("taken-back") {
			n.intent.TakenBack = &v1alpha1.TakenBackAssignment{Rollout: cmp.Or(words(td, "taken-back"), "workers"), Revision: 1, Attempt: 1}
		}
		if td.HasArg("revoked") { // in the same update
			n.revoke(types.UID(words(td, "revoked")))
		}
	},
	"unanswered": func(n *nodeSim, td *datadriven.TestData) {
		n.intent = Intent{Kind: Unanswered, Cause: words(td, "cause")}
	},
	"invalid": func(n *nodeSim, td *datadriven.TestData) {
		n.intent = Intent{Kind: Invalid, Cause: words(td, "cause"), Reason: words(td, "reason")}
	},
	"revoke": func(n *nodeSim, td *datadriven.TestData) {
		n.revoke()
		for _, arg := range td.CmdArgs {
			*n.revoked = append(*n.revoked, types.UID(arg.Key))
		}
	},
	"forget": func(n *nodeSim, td *datadriven.TestData) {
		n.forget = []string{td.CmdArgs[0].Key}
		delete(n.verdicts, td.CmdArgs[0].Key)
	},

	// Results of validation from now on.
	"verdict": func(n *nodeSim, td *datadriven.TestData) {
		revision := td.CmdArgs[0].Key
		if revision == "local" {
			revision = ""
		}

		outcome := slices.Index(outcomes, strings.ReplaceAll(td.CmdArgs[1].Key, "-", " "))
		n.must(outcome > 0, "unknown outcome %s", td.CmdArgs[1].Key)
		n.dryRuns[revision] = Verdict{Outcome(outcome), words(td, "guard"), words(td, "words")}
		delete(n.verdicts, revision)
	},
	"validation": func(n *nodeSim, td *datadriven.TestData) { n.validationHangs = td.HasArg("hangs") },

	// The kubelet. With a duration, time passes.
	"healthy":   func(n *nodeSim, td *datadriven.TestData) { n.healthy, n.waiting = true, false },
	"unhealthy": func(n *nodeSim, td *datadriven.TestData) { n.healthy, n.waiting = false, false },
	"waiting":   func(n *nodeSim, td *datadriven.TestData) { n.healthy, n.waiting = false, true },
	"notready":  func(n *nodeSim, td *datadriven.TestData) { n.healthy, n.node.Ready = true, false },
	"ready":     func(n *nodeSim, td *datadriven.TestData) { n.healthy, n.node.Ready = true, true },
	"sick-local": func(n *nodeSim, _ *datadriven.TestData) { // local is never healthy
		n.unhealthyConfig = func(c Config) bool { return c.IsLocal() }
	},
	"last-errors": func(n *nodeSim, td *datadriven.TestData) { n.lastErrors = words(td, "words") }, // before each exit from now on
	"idle":        func(n *nodeSim, td *datadriven.TestData) {},
	"suspended":   func(n *nodeSim, td *datadriven.TestData) { n.clock += duration(td, "for") },
	"exit": func(n *nodeSim, td *datadriven.TestData) {
		text := words(td, "words")
		if status := words(td, "status"); status != "" {
			text = "exit status " + status
		}

		times := 1
		if td.HasArg("times") {
			times = number(td, "times")
		}

		for range times {
			n.healthy = false
			n.exit(text, !td.HasArg("not-spawned"))
			if !n.child.Alive && n.up && !n.node.ShuttingDown {
				wait := n.last.Wake
				n.note("... %s later", wait)
				n.convergeAfter(wait)
			}
		}
	},

	// The node.
	"api":       func(n *nodeSim, td *datadriven.TestData) { n.node.API = td.HasArg("up") },
	"runtime":   func(n *nodeSim, td *datadriven.TestData) { n.node.RuntimeDown = td.HasArg("down") },
	"shutdown":  func(n *nodeSim, td *datadriven.TestData) { n.node.ShuttingDown = !td.HasArg("cancelled") },
	"pressure":  func(n *nodeSim, td *datadriven.TestData) { n.node.Pressure = keys(td) },
	"pods":      func(n *nodeSim, td *datadriven.TestData) { n.node.Pods = keys(td) },
	"starts":    func(n *nodeSim, td *datadriven.TestData) { n.node.Started = podStarts(td) },
	"refuses":   func(n *nodeSim, td *datadriven.TestData) { n.node.Refused = podStarts(td) },
	"lost-pods": func(n *nodeSim, td *datadriven.TestData) { n.node.LostPods = keys(td) },
	"storage": func(n *nodeSim, td *datadriven.TestData) {
		n.diskFails = words(td, "fails")
		if n.diskFails == "" {
			n.storage = ""
		}
	},
	"files": func(n *nodeSim, td *datadriven.TestData) { // only the first records are written from now on
		n.tearDisk = nil
		if td.HasArg("written") {
			first := number(td, "written")
			n.tearDisk = func(int) int { return first }
		}
	},
	"boot-id": func(n *nodeSim, td *datadriven.TestData) { n.bootIDUnknown = td.HasArg("unknown") },
	"clock":   func(n *nodeSim, td *datadriven.TestData) { n.clockJumps += duration(td, "jumps") },

	// The agent.
	"start": func(n *nodeSim, td *datadriven.TestData) {
		if td.HasArg("api-goes") { // it was reachable until the kubelet is started
			n.onDecision = func(_ State, _ Observed, d Decision) { n.node.API = n.node.API && d.Action.Kind != Start }
			defer func() { n.onDecision = nil }()
		}

		n.startAgent(td)
	},
	"sigterm": func(n *nodeSim, _ *datadriven.TestData) { n.sigterm() },
	"kill":    func(n *nodeSim, _ *datadriven.TestData) { n.kill() },
	"dies-before-acting": func(n *nodeSim, _ *datadriven.TestData) { // on the next decision that asks for something
		n.dieBeforeActing = func() bool { return n.last.Action.Kind != None }
	},
	"agent-restart": func(n *nodeSim, td *datadriven.TestData) { n.kill(); n.startAgent(td) },
	"reboot": func(n *nodeSim, td *datadriven.TestData) {
		if td.HasArg("clean") {
			n.sigterm()
		}

		n.kill()
		n.boot++
		n.node.LostPods = nil
		n.startAgent(td)
	},
	"edit-local": func(n *nodeSim, td *datadriven.TestData) { n.digest = words(td, "to") },
	"kubelet-upgrade": func(n *nodeSim, td *datadriven.TestData) {
		n.sigterm()
		n.version = words(td, "to")
		n.startAgent(td)
	},
}

func (n *nodeSim) startAgent(*datadriven.TestData) {
	n.healthy, n.dieBeforeActing = false, nil
	n.start()
}

func (n *nodeSim) flags(td *datadriven.TestData) {
	for _, arg := range td.CmdArgs {
		switch value := words(td, arg.Key); arg.Key {
		case "local":
			n.local = LocalConfig(value)
		case "threshold":
			n.limits.CrashLoopThreshold = number(td, arg.Key)
		case "trial":
			n.limits.TrialDuration = duration(td, arg.Key)
		case "api-loss-rollback":
			n.limits.APILossRollback = value == "on"
		case "local-invalid":
			n.limits.DegradeLocal = value == "degrade"
		case "proven":
		default:
			n.t.Fatalf("unknown flag %s", arg.Key)
		}
	}
}

// run runs a command and returns its output.
func (n *nodeSim) run(td *datadriven.TestData) string {
	command, ok := commands[td.Cmd]
	n.must(ok, "unknown command; known are %v", slices.Sorted(maps.Keys(commands)))
	n.trace = nil
	command(n, td)
	if n.up {
		n.converge()
	}

	for _, arg := range td.CmdArgs {
		if d, err := time.ParseDuration(arg.Key); err == nil {
			n.pass(d)
		}
	}

	now := n.describe()
	if len(n.trace) == 0 && slices.Equal(now, n.described) {
		return "nothing changes\n"
	}

	n.described = now

	return strings.Join(append(slices.Clone(n.trace), now...), "\n") + "\n"
}

// describe returns what the node remembers and reports.
func (n *nodeSim) describe() []string {
	switch {
	case n.refused:
		return []string{"the agent has refused to run"}
	case !n.up:
		return []string{"the agent does not run"}
	}

	s, d := n.state, n.last
	records := fmt.Sprintf("records: current %s, last-known-good %s", label(s.Current.Config, n.local), label(s.LastKnownGood.Config, n.local))
	if s.Trial != nil {
		records += fmt.Sprintf(", startups %d, trial of %s %s", len(s.Startups), Config{Revision: s.Trial.Revision}.UIDLabel(), s.Trial.Healthy.Duration+s.Run.UnsavedHealthy)
		if s.Trial.Fallback != NoFallback {
			records += " waits: " + string(s.Trial.Fallback)
		}
	}

	lines := []string{records}
	if t := s.Temporary; t != nil {
		lines = append(lines, fmt.Sprintf("temporary: (UID: %s) %s of %s", t.Revision, t.Ran.Duration+s.Run.UnsavedTemporary, t.End.After.Duration))
	}

	for _, b := range s.Bad {
		line := fmt.Sprintf("bad: (UID: %s) %s", b.Revision, b.Failure)
		if b.Provisional {
			line += ", provisional"
		}

		lines = append(lines, line)
	}

	if len(d.Validate) > 0 {
		return append(lines, fmt.Sprintf("waits for the verdict on %s", label(d.Validate[0], n.local)))
	}

	c := d.Status.Condition
	lines = append(lines, fmt.Sprintf("ConfigOK: %s | %s | %s (%s)", c.Status, c.Message, c.Cause, c.Reason))
	if p := d.Status.PodStarts; p.Starts != "" && p.Starts != v1alpha1.PodsStartUnknown {
		lines = append(lines, strings.TrimSpace("pods: "+p.Starts+" "+p.Refused))
	}
	if d.Status.Error != "" {
		lines = append(lines, "error: "+d.Status.Error)
	}

	return lines
}

func words(td *datadriven.TestData, key string) string {
	arg, ok := td.Arg(key)
	if !ok {
		return ""
	}

	return strings.Join(arg.Vals, ", ")
}

// podStarts returns the pods that a command names.
func podStarts(td *datadriven.TestData) (pods []PodStart) {
	for _, key := range keys(td) {
		if strings.Contains(key, "/") {
			p := podStart(key)
			p.Inherited = td.HasArg("inherited")
			pods = append(pods, p)
		}
	}

	return pods
}

// podStart returns a pod, namespace/name, of which kube-system is trusted, and
// evenkeel-system has a probe.
func podStart(name string) PodStart {
	namespace, pod, _ := strings.Cut(name, "/")
	probe := namespace == v1alpha1.SystemNamespace
	return PodStart{Namespace: namespace, Name: pod, Trusted: probe || namespace == "kube-system", Probe: probe, Words: "RunContainerError: refused"}
}

func keys(td *datadriven.TestData) []string {
	var keys []string
	for _, arg := range td.CmdArgs {
		if _, err := time.ParseDuration(arg.Key); err != nil && arg.Key != "none" {
			keys = append(keys, arg.Key)
		}
	}

	return keys
}

func number(td *datadriven.TestData, key string) int { return must.Get(strconv.Atoi(words(td, key))) }

func duration(td *datadriven.TestData, key string) time.Duration {
	return must.Get(time.ParseDuration(words(td, key)))
}
