// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/transcript"
)

// TestTranscripts runs the transcripts of rollouts: commands change the world,
// and `run` prints what the rollout does. Rewrite them with: go test
// ./internal/rollout -run Transcripts -rewrite
func TestTranscripts(t *testing.T) {
	transcript.Run(t, func(*testing.T) transcript.Command { return newWorld().command })
}

func (w *world) command(t *testing.T, td *datadriven.TestData, out *strings.Builder) (err error) {
	defer must.Catch(&err)

	for _, arg := range td.CmdArgs {
		must.About(td.Cmd+" "+arg.Key, func() { w.set(td.Cmd, arg.Key, strings.Join(arg.Vals, ",")) })
	}

	switch td.Cmd {
	case "run":
		most, until := 2*time.Hour, ""
		td.MaybeScanArgs(t, "for", &most)
		td.MaybeScanArgs(t, "until", &until)
		w.run(out, most, until)
	case "new": // another world
		*w = *newWorld()
	case "fleet":
		n, zones := 0, 1
		td.ScanArgs(t, "nodes", &n)
		td.MaybeScanArgs(t, "zones", &zones)
		w.add(n, zones)
	case "simulate":
		w.simulate(t, td, out)
	case "gates":
		for _, g := range w.in.Status.Gates {
			fmt.Fprintf(out, "%s %s value=%q failures=%d step=%d %s\n", g.Name, g.State, g.Value, g.Failures, g.Step, g.Message)
		}
	case "nodes":
		for i := range w.nodes {
			s := w.last.NodeState(i)
			fmt.Fprintf(out, "%s %s %s\n", w.nodes[i].Name, s.State, strings.TrimSpace(s.Reason+" "+s.Message))
		}
	case "history":
		for _, h := range w.in.Status.History {
			fmt.Fprintf(out, "%d %s %s: %s\n", h.Revision, h.UID, h.Outcome, h.Message)
		}

		if c := w.in.Status.CurrentRevision; c != nil {
			fmt.Fprintf(out, "current: %d %s\n", c.Number, c.ConfigMapRef.UID)
		}
	case "records": // that are kept on nodes
		for i := range w.nodes {
			if o := &w.nodes[i].Observation; *o != (Observation{}) {
				fmt.Fprintf(out, "%s %s revision=%d attempt=%d healthy=%t failed=%d offers=%d not-ready-before=%s\n",
					w.nodes[i].Name, o.Rollout, o.Revision, o.Attempt, !o.HealthySince.IsZero(), o.Failed, o.Offers, o.NotReadyBefore)
			}
		}
	case "conditions":
		for _, c := range w.last.Next.Conditions {
			fmt.Fprintf(out, "%s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}

	return nil
}

// set carries one argument out.
func (w *world) set(cmd, key, value string) {
	p := &w.in
	switch cmd {
	case "run", "fleet", "nodes", "conditions", "gates", "history", "records", "new", "simulate":
	case "policy":
		w.setPolicy(key, value)
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
	case "clock": // another leader, whose clock differs by that
		w.now = w.now.Add(parseDuration(key))
		p.Outages = seenSince(w.now)
	case "outage": // of the API server, for some time
		w.outage(parseDuration(key), func(*Node) time.Duration { return 0 })
	case "gate":
		w.setGate(key, value)
	case "metric":
		w.setMetric(key, value)
	case "approve":
		p.Spec.Approval = &v1alpha1.RolloutApproval{Revision: p.Target.Number, Step: int32(must.Get(strconv.Atoi(key)))}
	case "abort":
		p.Spec.Abort = &v1alpha1.RolloutAbort{Revision: p.Target.Number, Rollback: key == "rollback", Reason: p.Spec.PausedReason}
	case "reason": // of the pause, the freeze, and an abort that follows
		p.Spec.PausedReason = strings.ReplaceAll(key, "_", " ")
		p.Spec.FrozenReason = p.Spec.PausedReason
	case "retry":
		p.Spec.Abort = nil
		p.Spec.Retry = &v1alpha1.RolloutRetry{Revision: p.Target.Number, Attempt: w.in.Status.Attempt + 1}
		if key != "all" {
			p.Spec.Retry.Nodes = strings.Split(key, "+")
		}
	case "budget": // how many pods of it may be unready
		w.disruptable[key] = must.Get(strconv.Atoi(value))
	case "forbidden":
		w.forbidden, w.unserved = key == "pods", key == "budgets"
	case "gone":
		p.LastSucceededGone = true
	case "other": // a control plane that the rollout does not select
		n := Node{Name: key, ControlPlane: true, Ready: value != "down", InTrial: value == "trial", Reported: true}
		p.ControlPlanes = append(slices.DeleteFunc(slices.Clone(p.ControlPlanes), func(n Node) bool { return n.Name == key }), n)
	case "zone":
		for i := range w.nodes {
			if n := &w.nodes[i]; n.Domain == key && n.Ready != (value == "up") {
				w.setNotReady(n, value != "up")
			}
		}
	case "node":
		w.setNode(key, value)
	case "leave":
		w.nodes = slices.DeleteFunc(slices.Clone(w.nodes), func(n Node) bool { return n.Name == key })
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
		must.That(false, "unknown")
	}
}

func (w *world) setPolicy(key, value string) {
	p := &w.in
	s := &p.Spec.Strategy
	switch key {
	case "start-probe":
		p.Controller.StartProbe = new(true)
	case "max-domains":
		s.MaxDomainsInFlight = new(int32(must.Get(strconv.Atoi(value))))
		return
	case "parallel":
		s.ParallelControlPlanes = &v1alpha1.ParallelControlPlanes{Reason: value}
		return
	case "windows":
		p.Windows = nil
		for text := range strings.SplitSeq(value, ",") {
			p.Windows = append(p.Windows, parseWindow(text))
		}

		return
	case "steps":
		s.Steps = nil
		for text := range strings.SplitSeq(value, ",") {
			pause, isPause := strings.CutPrefix(text, "pause")
			step := v1alpha1.RolloutStep{}
			if !isPause {
				step.Nodes = new(intstr.Parse(text))
			} else if step.Pause = (&v1alpha1.RolloutPause{}); pause != "" {
				step.Pause.Duration = &metav1.Duration{Duration: parseDuration(pause[1:])}
			}

			s.Steps = append(s.Steps, step)
		}

		return
	}

	field := map[string]any{
		"max-unavailable": &s.MaxUnavailable, "max-joining": &s.MaxJoining, "per-domain": &s.MaxUnavailablePerDomain,
		"max-failures": &p.Spec.FailurePolicy.MaxFailures, "rollback": &p.Spec.Rollback.MaxUnavailable,
		"soak": &p.Spec.SoakSeconds, "drain-timeout": &s.DrainOptions.TimeoutSeconds, "deadline": &p.Spec.ProgressDeadlineSeconds,
		"paused": &p.Spec.Paused, "frozen": &p.Spec.Frozen, "pinned": &p.PassPauses, "reads-pods": &p.ReadsPods,
		"respect-budgets": &p.RespectBudgets, "room": &p.PreflightRoom, "unwritten": &p.Unwritten, // why a write to a node fails
		"action": &p.Spec.FailurePolicy.Action, "new-nodes": &p.Spec.NewNodes, "drain": &s.Drain,
		"start-probe": &s.StartProbe, "preflight": &s.Preflight,
	}[key]
	switch field := field.(type) {
	case **intstr.IntOrString:
		*field = new(intstr.Parse(value))
	case *int32:
		*field = int32(parseDuration(value) / time.Second)
	default: // a number, a word of the API, true or false
		must.Get(fmt.Sscan(value, field))
	}
}

func (w *world) setNode(name, value string) {
	n, a := w.node(name), w.agents[name]
	verb, content, _ := strings.Cut(value, ":")
	switch field := map[string]any{
		"plane": &n.ControlPlane, "canary": &n.Canary, "idle": &n.Idle, "last": &n.Last, "ignored": &a.ignored, "provisional": &n.Provisional,
		"stays": &a.stays, "refused": &a.refused, "stratum": &n.MachineKind, "owner": &n.Owner,
	}[verb].(type) {
	case *bool:
		*field = content != "false"
		return
	case *string:
		*field = content
		return
	}

	switch verb {
	case "crash", "reject", "hang", "notready", "evict", "drain", "relabelled", "unsure", "starts-none", "starts-fail", "well":
		a.does[content] = verb
	case "maintenance", "cordon", "uncordon":
		w.setMaintenance(n, map[string]string{"maintenance": content, "cordon": Cordoned}[verb])
	case "probe":
		a.probe = ProbeResult(content)
	case "silent", "speaks":
		a.silent = verb == "silent"
	case "down", "up":
		w.setNotReady(n, verb == "down")
	case "pods": // as web:2
		budget, pods, _ := strings.Cut(content, ":")
		w.setPods(name, budget, must.Get(strconv.Atoi(pods)))
	case "broken":
		a.broken = strings.FieldsFunc(content, func(r rune) bool { return r == '+' })
	case "drained": // by a rollout, with the numbers of this one
		n.Drain = Drain{Rollout: content, Revision: w.in.Target.Number, Attempt: w.in.Status.Attempt, Since: w.now}
	case "manual":
		n.Source = &v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{UID: "by-hand", SHA256: "by-hand"}}
	case "disabled":
		n.OtherSource = "Disabled"
	case "written": // by somebody else
		n.Generation++
	case "unreported":
		n.Reported = false
	case "inconclusive":
		n.OK, n.Reason = "Unknown", "Inconclusive"
	case "crashed":
		n.OK, n.Reason, n.Error = "False", "CrashLooped", "late"
	case "healthy":
		n.OK, n.Reason = "True", "AllChecksPassed"
	default:
		must.That(false, "unknown %q", value)
	}
}

func parseDuration(s string) time.Duration { return must.Get(time.ParseDuration(s)) }
