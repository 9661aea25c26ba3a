// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// removed removes these objects from the cluster.
func removed(which func(*Part) bool) func(*Facts) {
	return func(f *Facts) {
		for i := range f.Parts {
			if which(&f.Parts[i]) {
				f.Parts[i].Got = nil
			}
		}
	}
}

// all, ofKind and isCRD choose objects.
func all(*Part) bool { return true }

func ofKind(kind string) func(*Part) bool {
	return func(p *Part) bool { return p.Want.GetKind() == kind }
}

var isCRD = ofKind("CustomResourceDefinition")

// failed makes a node's ConfigOK False, for this reason.
func failed(reason string) func(*Node) {
	return func(n *Node) { n.Status, n.Reason, n.Standing.Health = "False", reason, describe.HealthFailed }
}

// A report starts with what matters most, lists what explains the rest, and
// counts the rest.
func TestAReportStartsWithAHeadlineAndTheFindingsThatExplainTheOthers(t *testing.T) {
	nodes := func(all ...Node) func(*Facts) { return func(f *Facts) { f.Nodes = all } }
	many := func(n int, change func(*Node)) []Node {
		var out []Node
		for i := range n {
			out = append(out, fine(fmt.Sprint("n", i), change))
		}

		return out
	}
	for _, tt := range []struct {
		name     string
		change   func(*Facts)
		headline string
		listed   []string // IDs
		follow   map[string]int
	}{
		{"all is well", nil, "no problems", nil, nil},
		{"an empty cluster", func(f *Facts) { *f = Facts{Now: now, Parts: f.Parts}; removed(all)(f) },
			"evenkeel is not installed in this cluster", []string{"installation"}, map[string]int{"installation": -1}},
		{"an empty cluster with nodes, some labelled by hand", func(f *Facts) {
			*f = Facts{Now: now, Parts: f.Parts, HasConfig: true, Nodes: []Node{bare("a", "", 0), bare("b", "", 0)}}
			removed(all)(f)
		}, "evenkeel is not installed in this cluster", []string{"installation"}, map[string]int{"installation": -1}},
		{"only CRDs", func(f *Facts) {
			*f = Facts{Now: now, Parts: f.Parts, HasConfig: true}
			removed(func(p *Part) bool { return !isCRD(p) })(f)
		}, "evenkeel is installed incompletely", []string{"installation"}, map[string]int{"installation": -1}},
		{"one policy is missing", func(f *Facts) { part(f, "ValidatingAdmissionPolicy", "evenkeel-node").Got = nil },
			"1 object of the installation is missing or outdated", []string{"api"}, nil},
		{"two policies are missing: a controller that has died is no consequence", func(f *Facts) {
			removed(ofKind("ValidatingAdmissionPolicyBinding"))(f)
			f.Lease.Alive = false
		}, "evenkeel is installed incompletely, no controller runs", []string{"installation", "controller"}, map[string]int{"installation": -1}},
		{"the controller's permissions are missing", func(f *Facts) {
			removed(func(p *Part) bool { return p.Of == "controller" })(f)
			f.Lease.Alive = false
		}, "evenkeel is installed incompletely", []string{"installation"}, map[string]int{"installation": -1}},
		{"the role of nodes is missing", func(f *Facts) {
			part(f, "ClusterRole", "evenkeel-node").Got, part(f, "ClusterRoleBinding", "evenkeel-node").Got = nil, nil
			f.Nodes = []Node{bare("a", "", 0)}
		}, "evenkeel is installed incompletely", []string{"installation"}, map[string]int{"installation": 3}},
		{"two differ", func(f *Facts) {
			set(part(f, "ValidatingAdmissionPolicy", "evenkeel-node").Got, "Ignore", "spec", "failurePolicy")
			set(part(f, "ValidatingAdmissionPolicy", "evenkeel-rollout").Got, "Ignore", "spec", "failurePolicy")
		}, "2 objects of the installation are missing or outdated", []string{"api", "api-2"}, nil},
		{"halted rollouts and failed nodes", func(f *Facts) {
			f.Rollouts = []v1alpha1.NodeConfigRollout{rollout("a", v1alpha1.RolloutHalted, ""), rollout("b", v1alpha1.RolloutHalted, ""), rollout("c", v1alpha1.RolloutStuck, "")}
			f.Nodes = append(many(8, failed("CrashLooped")), fine("z", failed("DeadEnd")))
		}, "2 rollouts halted, 1 rollout stuck, 9 nodes failed", []string{"dead-end", "fallen-back", "rollouts", "rollouts-2", "rollouts-3"}, nil},
		{"one of each", func(f *Facts) {
			f.Rollouts = []v1alpha1.NodeConfigRollout{rollout("a", v1alpha1.RolloutRolledBack, ""), rollout("b", v1alpha1.RolloutAwaitingApproval, "")}
			f.Nodes = many(1, failed("ValidationFailed"))
		}, "1 rollout rolled back, 1 node failed, 1 rollout waiting for approval", []string{"refused", "rollouts", "rollouts-2"}, nil},
		{"a node that keeps its configuration because of its pods has not failed", nodes(fine("a", condition("False", "NeedsDrain", "cpu manager", time.Hour),
			func(n *Node) { n.Standing.Position = describe.PositionBlocked })), "no problems, 1 node blocked", []string{"refused"}, nil},
		{"NodeConfigs of nodes that are gone", func(f *Facts) { f.Orphans = []string{"x", "y"} }, "no problems", []string{"left-over"}, nil},
		{"nodes that are not Ready", nodes(fine("a", health(describe.HealthNotReady)), fine("b")), "1 node not Ready", []string{"not-ready"}, nil},
		{"an agent that has just become unclear", nodes(fine("a", health(describe.HealthUnknown))), "1 node unknown", nil, nil},
		{"nodes that became unhealthy after a change", func(f *Facts) {
			failsLater(f)
			f.Nodes = many(50, health(describe.HealthNotReady))
		}, "50 of 300 nodes are not Ready; all 50 run workers/7, received at most 3m earlier, 50 nodes not Ready", []string{"not-ready", "later"}, nil},
		{"no controller", func(f *Facts) {
			f.Lease.Alive = false
			f.Orphans = []string{"a"}
		}, "no controller runs", []string{"controller"}, map[string]int{"controller": 1}},
		{"a ConfigMap that is gone", nodes(
			fine("a", assigned("uid-0"), condition("Unknown", "SyncFailed", "not found", time.Hour)), fine("b", assigned("uid-0")),
		), "1 problem", []string{"sources"}, map[string]int{"sources": 1}},
		{"a ConfigMap that is gone, and a node with another one", nodes(
			fine("a", assigned("uid-0"), condition("Unknown", "SyncFailed", "not found", time.Hour)), fine("b", condition("Unknown", "SyncFailed", "not found", time.Hour)),
		), "2 problems", []string{"unclear", "sources"}, nil},
		{"an install that failed", nodes(bare("a", "install-failed", time.Hour)), "1 problem", []string{"install"}, map[string]int{"install": 1}},
		{"a forbidden user", func(f *Facts) {
			for i := range f.Parts {
				f.Parts[i].Got, f.Parts[i].Denied = nil, true
			}

			*f = Facts{Now: now, Parts: f.Parts, Lease: Lease{Denied: true}, Denied: []Denied{{"Nodes", "forbidden"}, {"the Lease", "forbidden"}}}
		}, "nothing could be checked: you are not allowed to read evenkeel's objects", []string{"rights", "rights-2"}, nil},
		{"a user who may not read Nodes", func(f *Facts) { f.Denied = []Denied{{"Nodes", "forbidden"}} },
			"no problems in what could be checked", []string{"rights"}, nil},
		{"a user who sees failed nodes and no Lease", func(f *Facts) {
			f.Denied, f.Lease, f.Nodes = []Denied{{"the Lease", "forbidden"}}, Lease{Denied: true}, many(2, failed("NotReady"))
		}, "2 nodes failed, not everything could be checked", []string{"fallen-back", "rights"}, nil},
	} {
		facts := well(t, tt.change)
		for i := range facts.Nodes { // as Look does
			if facts.HasConfig {
				facts.Situation.Add(fleet.Pair{NodeUnread: true}, facts.Nodes[i].Standing, nil, now)
			}
		}

		r := NewReport(facts)
		assert.Equal(t, r.Headline, tt.headline, tt.name)
		// The exit code and the headline agree.
		calm := strings.HasPrefix(tt.headline, "no problems") || strings.HasPrefix(tt.headline, "nothing could")
		assert.That(t, (r.Level == describe.LevelProblem) != calm, "%s: the level is %s", tt.name, r.Level)
		var listed []string
		follow, before := map[string]int{}, 0
		for _, f := range r.Findings {
			at := slices.Index(severities, f.Severity)
			assert.That(t, at >= before, "%s: %s is listed after something less severe", tt.name, f.ID)
			before = max(at, before)
			if f.ExplainedBy == "" {
				listed = append(listed, f.ID)
				continue
			}

			follow[f.ExplainedBy]++
		}

		assert.That(t, slices.Equal(listed, tt.listed), "%s: listed %q, want %q", tt.name, listed, tt.listed)
		for id, want := range tt.follow {
			n := follow[id]
			assert.That(t, n != 0 && (want <= 0 || n == want), "%s: %d findings follow from %s, want %d (-1: some)", tt.name, n, id, want)
			delete(follow, id)
		}

		for id, n := range follow {
			t.Errorf("%s: %d findings follow from %s", tt.name, n, id)
		}
	}
}

// The rules must not hide a cause behind its own consequence.
func TestNoFindingExplainsWhatExplainsIt(t *testing.T) {
	f := well(t, func(f *Facts) {
		removed(all)(f)
		f.Lease = Lease{}
		f.Nodes = []Node{bare("a", "install-failed", time.Hour), fine("b", assigned("uid-0"), condition("Unknown", "SyncFailed", "x", time.Hour))}
		f.Orphans = []string{"c"}
		f.Rollouts = []v1alpha1.NodeConfigRollout{rollout("r", v1alpha1.RolloutHalted, "")}
	})
	findings := NewReport(f).Findings
	assert.Equal(t, findings[0].Wrong, fmt.Sprintf("is not installed: none of its %d objects exists", len(f.Parts)), "first")
	assert.Equal(t, findings[0].Do, "kubectl apply -f install.yaml", "what to do")
	by := map[string]string{}
	policies := 0
	for _, one := range findings {
		by[one.ID] = one.ExplainedBy
		if strings.HasPrefix(one.Object, "ValidatingAdmissionPolicy ") && one.ExplainedBy == "installation" {
			policies++
		}
	}

	assert.That(t, policies != 0, "the policies are not among the findings")

	for id := range by {
		seen := map[string]bool{}
		for at := id; at != ""; at = by[at] {
			assert.Must(t, !seen[at], "%s explains itself: %v", at, by)
			seen[at] = true
		}
	}
}
