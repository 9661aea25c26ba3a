package trial

import (
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// do runs commands of the transcripts.
func (n *nodeSim) do(lines ...string) {
	for _, line := range lines {
		command, args, err := datadriven.ParseLine(line)
		n.must(err == nil && commands[command] != nil, "%s: %v", line, err)
		n.run(&datadriven.TestData{Cmd: command, CmdArgs: args})
	}
}

// proven is a node with a last-known-good configuration (UID: g).
var proven = []string{"node", "assign uid=g payload=p0", "healthy 10m5s"}

// TestConfigOKFollowsTheTableInTheProposal has a case for every row.
func TestConfigOKFollowsTheTableInTheProposal(t *testing.T) {
	const (
		invalid  = "failed to sync, desired config unclear, cause: invalid NodeConfigSource, exactly one subfield must be non-nil, but all were nil"
		unclear  = "invalid cause=(invalid NodeConfigSource, exactly one subfield must be non-nil, but all were nil)"
		rejects  = "verdict u rejected words=(maxPods must not be negative)"
		assign   = "assign uid=u payload=p1"
		onTrial  = "assign uid=running payload=p2"
		allGood  = "all checks passed"
		lkg      = "using last-known-good (UID: g)"
		rejected = "failed to validate current (UID: u)"
	)
	for _, c := range []struct {
		name   string
		events []string // after those of a proven node, unless they begin with one of their own
		want   Condition
		err    string
	}{
		{"fine, in its trial", []string{assign},
			Condition{"True", "AllChecksPassed", "using current (UID: u)", allGood}, ""},
		{"fine, past it", []string{assign, "healthy 10m5s"},
			Condition{"True", "AllChecksPassed", "using current (UID: u)", allGood}, ""},
		{"nothing assigned, init file", []string{"node local=init"},
			Condition{"True", "LocalInit", "using current (init)", "current is set to the local default, and an init config was provided"}, ""},
		{"nothing assigned, none", []string{"node local=default"},
			Condition{"True", "LocalDefault", "using current (default)", "current is set to the local default, and no init config was provided"}, ""},
		{"source invalid, at start", []string{assign, unclear, "agent-restart"},
			Condition{"Unknown", "SyncFailed", lkg, invalid}, invalid},
		{"source invalid, at start, nothing proven", []string{"new-node local=init", unclear, "start"},
			Condition{"Unknown", "SyncFailed", "using last-known-good (init)", invalid}, invalid},
		{"source invalid, live, current runs", []string{assign, unclear},
			Condition{"Unknown", "SyncFailed", "using current (UID: u)", invalid}, invalid},
		{"source invalid, live, last-known-good runs", []string{assign, "exit status=1 times=4", "healthy 5s", unclear},
			Condition{"Unknown", "SyncFailed", lkg, invalid}, invalid},
		{"source not to be had, live", []string{assign, "unanswered cause=(NodeConfig node-1 not found)"},
			Condition{"Unknown", "SyncFailed", "using current (UID: u)", "failed to sync, desired config unclear, cause: NodeConfig node-1 not found"},
			"failed to sync, desired config unclear, cause: NodeConfig node-1 not found"},
		{"source not to be had, at start", []string{"unanswered cause=(connection refused)", "agent-restart"},
			Condition{"Unknown", "SyncFailed", "using current (UID: g)", "failed to sync, desired config unclear, cause: connection refused"},
			"failed to sync, desired config unclear, cause: connection refused"},
		{"rejected", []string{rejects, assign},
			Condition{"False", "ValidationFailed", lkg, rejected}, rejected + ": maxPods must not be negative"},
		{"rejected, while another is in its trial", []string{onTrial, rejects, assign},
			Condition{"False", "ValidationFailed", "using (UID: running)", rejected}, rejected + ": maxPods must not be negative"},
		{"refused by a guard", []string{"verdict u refused guard=WouldEvictPods words=(5 pods run and maxPods would be 3)", assign},
			Condition{"False", "WouldEvictPods", lkg, "refused current (UID: u): 5 pods run and maxPods would be 3"},
			"refused current (UID: u): 5 pods run and maxPods would be 3"},
		{"refused by a guard, while another is in its trial", []string{onTrial, "verdict u refused guard=NeedsDrain words=(drain it first)", assign},
			Condition{"False", "NeedsDrain", "using (UID: running)", "refused current (UID: u): drain it first"}, "refused current (UID: u): drain it first"},
		{"could not tell", []string{"verdict u could-not-tell words=(the dry run hangs)", assign},
			Condition{"Unknown", "CouldNotValidate", lkg, "could not validate current (UID: u): the dry run hangs"}, "could not validate current (UID: u): the dry run hangs"},
		{"could not tell, while another is in its trial", []string{onTrial, "verdict u could-not-tell words=(the dry run hangs)", assign},
			Condition{"Unknown", "CouldNotValidate", "using (UID: running)", "could not validate current (UID: u): the dry run hangs"},
			"could not validate current (UID: u): the dry run hangs"},
		{"trial failed: crash-looped", []string{assign, "exit status=1 times=4"},
			Condition{"False", "CrashLooped", lkg, "current (UID: u) crash-looped: 4 starts in its trial, last: exit status 1"},
			"current (UID: u) crash-looped: 4 starts in its trial, last: exit status 1"},
		{"trial failed: not healthy", []string{assign, "unhealthy 2m"},
			Condition{"False", "NotHealthy", lkg, "current (UID: u) was not healthy for 2m0s"}, "current (UID: u) was not healthy for 2m0s"},
		{"trial failed: not ready", []string{assign, "notready 2m"},
			Condition{"False", "NotReady", lkg, "current (UID: u) left the node not ready for 2m0s"}, "current (UID: u) left the node not ready for 2m0s"},
		{"trial failed: the workload", []string{assign, "healthy 5s", "pressure MemoryPressure"},
			Condition{"False", "WorkloadHarmed", lkg, "current (UID: u) harmed the workload: MemoryPressure turned True"},
			"current (UID: u) harmed the workload: MemoryPressure turned True"},
		{"trial failed, local is last-known-good", []string{"node local=default", assign, "unhealthy 2m"},
			Condition{"False", "NotHealthy", "using last-known-good (default)", "current (UID: u) was not healthy for 2m0s"}, "current (UID: u) was not healthy for 2m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNodeSim(t)
			if first := strings.Fields(c.events[0])[0]; first != "node" && first != "new-node" {
				n.do(proven...)
			}
			n.do(c.events...)
			st := n.last.Status
			if st.Condition != c.want {
				t.Errorf("got  %+v\nwant %+v", st.Condition, c.want)
			}
			if st.Error != c.err {
				t.Errorf("error is %q, want %q", st.Error, c.err)
			}
		})
	}
}

func TestStatusReportsAssignedActiveLastKnownGoodAndTrial(t *testing.T) {
	n := newNodeSim(t)
	n.do(proven...)
	n.do("assign uid=u payload=p1 attempt=2", "exit status=1", "healthy 1m")
	st := n.last.Status
	if st.Assigned == nil || st.Assigned.Revision != "u" || st.Assigned.Rollout.Attempt != 2 {
		t.Errorf("assigned is %+v", st.Assigned)
	}
	if st.Active.Revision != "u" || st.LastKnownGood.Revision != "g" || st.Local != Init {
		t.Errorf("active %q, last-known-good %q, local %q", st.Active.Revision, st.LastKnownGood.Revision, st.Local)
	}
	if want := epoch.Add(n.limits.TrialDuration); !st.LastKnownGood.Since.After(want) || st.LastKnownGood.Since.After(want.Add(10*time.Second)) {
		t.Errorf("last-known-good since %s", st.LastKnownGood.Since)
	}
	p := st.Trial
	if p == nil || p.Healthy < 50*time.Second || p.Duration != n.limits.TrialDuration || p.Restarts != 1 || p.Threshold != 3 {
		t.Errorf("the trial is %+v", p)
	}
	n.do("local")
	if st := n.last.Status; st.Assigned != nil || !st.Active.IsLocal() || !st.LastKnownGood.IsLocal() || st.Trial != nil {
		t.Errorf("after local was assigned: %+v", st)
	}
}
