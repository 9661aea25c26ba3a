// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// LastResetting is the last minor version whose kubelet always sets containers
// with probes not ready at its start. For later ones only the agent knows the
// feature gates.
const LastResetting = 34

// respectsBudgets reports whether restarts are treated as disruptions, which
// needs a permission that may be unknown: nil.
func respectsBudgets(s *v1alpha1.RolloutStrategy, mayReadPods *bool) (bool, error) {
	asked := s.RespectDisruptionBudgets
	switch {
	case asked != nil && !*asked, mayReadPods == nil:
		return false, nil
	case asked == nil && s.Drain == v1alpha1.DrainAlways: // the pods are evicted before, within their budgets
		return false, nil
	case asked != nil && !*mayReadPods:
		return false, errors.New("spec.strategy.respectDisruptionBudgets: the controller may not list pods and PodDisruptionBudgets; " +
			"grant it with kubectl apply -k config/drain (Helm: --set drain.enabled=true), or set the field to false")
	}

	return *mayReadPods, nil
}

// disrupts reports whether a restart of a node's kubelet makes pods unready, as
// far as its version and its agent say.
func disrupts(node *corev1.Node, st *v1alpha1.NodeConfigStatus) bool {
	return resets(node) || st.PodsUnreadyOnRestart != nil && *st.PodsUnreadyOnRestart > 0
}

// resets reports whether a node's kubelet makes all pods with probes unready
// when it starts, whatever its feature gates are.
func resets(node *corev1.Node) bool {
	v, err := version.ParseGeneric(node.Status.NodeInfo.KubeletVersion)
	return err == nil && v.Major() == 1 && v.Minor() <= LastResetting
}

// Covers reports whether a PodDisruptionBudget selects a pod of its namespace.
// The API server ignores an invalid selector, too.
func Covers(b *policyv1.PodDisruptionBudget, p *corev1.Pod) bool {
	if b.Namespace != p.Namespace { // before the selector is parsed: there can be thousands of budgets
		return false
	}

	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)

	return err == nil && selector.Matches(labels.Set(p.Labels))
}

// AllowedBy returns the disruptions that the budgets allow, as a plan takes
// them. A budget whose status is of an earlier spec allows none.
func AllowedBy(budgets []policyv1.PodDisruptionBudget) map[string]int {
	out := map[string]int{}
	for i := range budgets {
		allowed := 0
		if st := &budgets[i].Status; st.ObservedGeneration >= budgets[i].Generation {
			allowed = max(0, int(st.DisruptionsAllowed))
		}

		out[budgetKey(&budgets[i])] = allowed
	}

	return out
}

func budgetKey(b *policyv1.PodDisruptionBudget) string { return b.Namespace + "/" + b.Name }

// DisruptedPods counts the pods of a node that a restart of its kubelet makes
// unready, as a plan takes them. pods are all pods of the node. The node and
// its NodeConfig may be stripped.
func DisruptedPods(node *corev1.Node, nc *v1alpha1.NodeConfig, pods []corev1.Pod, budgets []policyv1.PodDisruptionBudget) map[string]int {
	var reset []*corev1.Pod
	static := int64(0)
	for i := range pods {
		p := &pods[i]
		if !isReset(p) {
			continue
		}

		if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
			static++ // a restart of any kubelet makes it unready, and it cannot be evicted
		} else {
			reset = append(reset, p)
		}
	}

	if !resets(node) && (nc.Status.PodsUnreadyOnRestart == nil || *nc.Status.PodsUnreadyOnRestart <= static) {
		return nil
	}

	counts := map[string]int{}
	for _, p := range reset {
		for i := range budgets {
			if b := &budgets[i]; Covers(b, p) {
				counts[budgetKey(b)]++
			}
		}
	}

	return counts
}

// StaticPodsNotReady returns the names of the static pods of a node that are
// not Ready, of at most 20. pods are all pods of the node. A pod that has
// succeeded is not to be Ready.
func StaticPodsNotReady(pods []corev1.Pod) (names []string) {
	for i := range pods {
		p := &pods[i]
		_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
		if mirror && p.Status.Phase != corev1.PodSucceeded && !PodReady(p) && len(names) < 20 {
			names = append(names, p.Name)
		}
	}

	return names
}

// isReset reports whether a pod is Ready and has a readiness or startup probe,
// as the agent counts them.
func isReset(p *corev1.Pod) bool {
	probed := func(c corev1.Container) bool { return c.ReadinessProbe != nil || c.StartupProbe != nil }
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded &&
		(slices.ContainsFunc(p.Spec.Containers, probed) || slices.ContainsFunc(p.Spec.InitContainers, probed)) &&
		PodReady(p)
}

// PodReady reports whether a pod is Ready.
func PodReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// DrainID returns the identifier of a rollout in the records of its drains. It
// is a digest of the UID, because the value of a taint has at most 63
// characters.
func DrainID(uid types.UID) string {
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:5])
}

// unknownDrain is the rollout of a record that cannot be read: somebody else
// has changed it.
const unknownDrain = "unknown"

// handedOver ends a record after a leader has handed over.
const handedOver = "h"

// DrainOf returns the drain that a Node records in its taint
// evenkeel.dev/draining: REVISION.ATTEMPT.SECONDS.ID, and .h after a leader has
// handed over. A node may not change its own taints, but may change its
// annotations: therefore it is a taint.
func DrainOf(node *corev1.Node) rollout.Drain {
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if t.Key != v1alpha1.TaintDraining {
			continue
		}

		d, err := parseDrain(t.Value)
		if err != nil || t.Effect != corev1.TaintEffectNoSchedule || !numbered(d.Revision, d.Attempt) {
			return rollout.Drain{Rollout: unknownDrain}
		}

		return d
	}

	return rollout.Drain{}
}

func parseDrain(value string) (rollout.Drain, error) {
	parts := strings.Split(value, ".")
	if n := len(parts); n < 4 || n > 5 || n == 5 && parts[4] != handedOver || len(parts[3]) != len(DrainID("")) {
		return rollout.Drain{}, errors.New("not a record of a drain")
	}

	var numbers [3]int64
	var errs [3]error
	for i := range numbers {
		numbers[i], errs[i] = strconv.ParseInt(parts[i], 10, 64)
	}

	return rollout.Drain{
		Rollout: parts[3], Revision: numbers[0], Attempt: numbers[1], Since: time.Unix(numbers[2], 0).UTC(), HandedOver: len(parts) == 5,
	}, errors.Join(errs[:]...)
}

// DrainTaint returns the taint that records a drain.
func DrainTaint(d rollout.Drain) corev1.Taint {
	value := fmt.Sprintf("%d.%d.%d.%s", d.Revision, d.Attempt, d.Since.Unix(), d.Rollout)
	if d.HandedOver {
		value += "." + handedOver
	}

	return corev1.Taint{Key: v1alpha1.TaintDraining, Value: value, Effect: corev1.TaintEffectNoSchedule}
}
