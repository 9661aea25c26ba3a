package rollout

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/evenkeel/evenkeel/testkit/transcript"
)

// TestTranscripts runs the transcripts of rollouts: commands change the world, and `run` prints what the rollout does.
// Rewrite them with: go test ./internal/rollout -run Transcripts -rewrite
func TestTranscripts(t *testing.T) {
	transcript.Run(t, func(*testing.T) transcript.Command { return newWorld().command })
}

func (w *world) command(t *testing.T, td *datadriven.TestData, out *strings.Builder) error {
	for _, arg := range td.CmdArgs {
		value := strings.Join(arg.Vals, ",")
		if err := w.set(td.Cmd, arg.Key, value); err != nil {
			return fmt.Errorf("%s %s: %w", td.Cmd, arg.Key, err)
		}
	}
	switch td.Cmd {
	case "run":
		most, until := 2*time.Hour, ""
		for _, arg := range td.CmdArgs {
			switch arg.Key {
			case "for":
				most, _ = time.ParseDuration(arg.Vals[0])
			case "until":
				until = arg.Vals[0]
			}
		}
		w.run(out, most, until)
	case "fleet":
		n, zones := 0, 1
		td.ScanArgs(t, "nodes", &n)
		if td.HasArg("zones") {
			td.ScanArgs(t, "zones", &zones)
		}
		w.add(n, zones)
	case "gates":
		for _, g := range w.progress.Gates {
			fmt.Fprintf(out, "%s %s value=%q failures=%d step=%d %s\n", g.Name, g.State, g.Value, g.Failures, g.Step, g.Message)
		}
	case "nodes":
		for i := range w.nodes {
			s := w.last.NodeState(i)
			fmt.Fprintf(out, "%s %s %s\n", w.nodes[i].Name, s.State, strings.TrimSpace(s.Reason+" "+s.Message))
		}
	case "conditions":
		for _, c := range w.last.Conditions {
			fmt.Fprintf(out, "%s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return nil
}

// set carries one argument out.
func (w *world) set(cmd, key, value string) error {
	p := &w.policy
	switch cmd {
	case "run", "fleet", "nodes", "conditions", "gates":
		return nil
	case "policy":
		return w.setPolicy(key, value)
	case "target":
		w.target(key)
	case "leader": // another one leads, and has written its term to all ConfigMaps
		p.Term++
		for uid := range w.terms {
			w.terms[uid] = p.Term
		}
		if key == "forgets" { // it sees all nodes for the first time
			p.Outages = seenSince(w.now)
			w.forgetObservations()
		}
	case "restart":
		w.restart()
	case "gate":
		return w.setGate(key, value)
	case "metric":
		return w.setMetric(key, value)
	case "approve":
		step, err := strconv.Atoi(key)
		p.Approval = Approval{Revision: p.Target.Number, Step: step}
		return err
	case "abort":
		p.Abort = Abort{p.Target.Number, key == "rollback", p.PausedReason}
	case "reason": // of the pause, the freeze, and an abort that follows
		p.PausedReason = strings.ReplaceAll(key, "_", " ")
		p.FrozenReason = p.PausedReason
	case "retry":
		p.Abort = Abort{}
		p.Retry = Retry{p.Target.Number, w.progress.Attempt + 1, nil}
		if key != "all" {
			p.Retry.Nodes = strings.Split(key, "+")
		}
	case "budget": // how many pods of it may be unready
		most, err := strconv.Atoi(value)
		w.setBudget(key, most)
		return err
	case "forbidden":
		w.forbidden, w.unserved = key == "pods", key == "budgets"
	case "gone":
		p.LastSucceeded.Gone = true
	case "zone":
		for i := range w.nodes {
			if n := &w.nodes[i]; n.Domain == key && n.Ready != (value == "up") {
				w.setNotReady(n, value != "up")
			}
		}
	case "node":
		return w.setNode(key, value)
	case "leave":
		for i := range w.nodes {
			if w.nodes[i].Name == key {
				w.nodes = append(w.nodes[:i:i], w.nodes[i+1:]...)
				break
			}
		}
	case "join": // in words, or a number of nodes
		number, err := strconv.Atoi(key)
		if err != nil {
			number = 1
		}
		for range number {
			w.add(1, 1)
			w.nodes[len(w.nodes)-1].Created = w.now
		}
	default:
		return fmt.Errorf("unknown")
	}
	return nil
}

func (w *world) setPolicy(key, value string) error {
	p := &w.policy
	switch key {
	case "max-unavailable":
		p.MaxUnavailable = parseAmount(value)
	case "max-joining":
		a := parseAmount(value)
		p.MaxJoining = &a
	case "per-domain":
		a := parseAmount(value)
		p.MaxUnavailablePerDomain = &a
	case "max-domains":
		p.MaxDomainsInFlight, _ = strconv.Atoi(value)
	case "max-failures":
		p.MaxFailures = parseAmount(value)
	case "action":
		p.RollbackOnFailure = value == "rollback"
	case "rollback":
		p.RollbackMaxUnavailable = parseAmount(value)
	case "pinned":
		p.PassPauses = value == "true"
	case "paused":
		p.Paused = value == "true"
	case "frozen":
		p.Frozen = value == "true"
	case "new-nodes":
		p.NewNodesTarget = value == "target"
	case "soak":
		p.Soak, _ = time.ParseDuration(value)
	case "drain":
		p.Drain = map[string]DrainMode{"never": DrainNever, "when-blocked": DrainWhenBlocked, "always": DrainAlways}[value]
	case "drain-timeout":
		p.DrainTimeout, _ = time.ParseDuration(value)
	case "release-after":
		p.ReleaseAfterTrial = value == "trial"
	case "preflight":
		p.Preflight = map[string]PreflightMode{"off": PreflightOff, "report": PreflightReport, "require": PreflightRequire}[value]
	case "room":
		p.PreflightRoom, _ = strconv.Atoi(value)
	case "respect-budgets":
		p.RespectBudgets = value == "true"
	case "windows":
		p.Windows = nil
		for _, s := range strings.Split(value, ",") {
			window, err := parseWindow(s)
			if err != nil {
				return err
			}
			p.Windows = append(p.Windows, window)
		}
	case "deadline":
		p.ProgressDeadline, _ = time.ParseDuration(value)
	case "invalid":
		p.Invalid = value
	case "steps":
		p.Steps = nil
		for _, s := range strings.Split(value, ",") {
			pause, isPause := strings.CutPrefix(s, "pause")
			step := Step{}
			if !isPause {
				step.Nodes = parseAmount(s)
			} else if pause != "" {
				step.Pause, _ = time.ParseDuration(pause[1:])
			}
			p.Steps = append(p.Steps, step)
		}
	default:
		return fmt.Errorf("unknown")
	}
	return nil
}

func (w *world) setNode(name, value string) error {
	n, a := w.node(name), w.agents[name]
	verb, content, _ := strings.Cut(value, ":")
	switch verb {
	case "crash", "reject", "hang", "notready", "evict", "drain", "relabelled", "unsure", "well":
		a.does[content] = verb
	case "maintenance", "cordon", "uncordon":
		w.setMaintenance(n, map[string]string{"maintenance": content, "cordon": Cordoned}[verb])
	case "stays":
		a.stays = content
	case "refused":
		a.refused = content
	case "ignored":
		a.ignored = content == "true"
	case "silent", "speaks":
		a.silent = verb == "silent"
	case "old", "new":
		n.Preflight.Able = verb == "new"
	case "down", "up":
		w.setNotReady(n, verb == "down")
	case "pods": // as web:2
		budget, pods, _ := strings.Cut(content, ":")
		number, err := strconv.Atoi(pods)
		w.setPods(name, budget, number)
		return err
	case "canary":
		n.Canary = true
	case "idle", "busy":
		n.Idle = verb == "idle"
	case "last":
		n.Last = true
	case "stratum":
		n.MachineKind = content
	case "manual":
		n.Source = Source{Kind: SourceConfigMap, UID: "by-hand", SHA256: "by-hand"}
	case "disabled":
		n.OtherSource = "Disabled"
	case "owner":
		n.Owner = content
	case "unreported":
		n.Reported = false
	case "inconclusive":
		n.OK, n.Reason = "Unknown", "Inconclusive"
	case "provisional":
		n.Provisional = content == "true"
	default:
		return fmt.Errorf("unknown %q", value)
	}
	return nil
}

func parseAmount(s string) Amount {
	number, percent := strings.CutSuffix(s, "%")
	n, err := strconv.Atoi(number)
	if err != nil {
		panic(err)
	}
	return Amount{n, percent}
}
