package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// DrainID returns the identifier of a rollout in the records of its drains. It is a digest of the UID, because the value of a
// taint has at most 63 characters.
func DrainID(uid types.UID) string {
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:5])
}

// unknownDrain is the rollout of a record that cannot be read: somebody else has changed it.
const unknownDrain = "unknown"

// handedOver ends a record after a leader has handed over.
const handedOver = "h"

// DrainOf returns the drain that a Node records in its taint evenkeel.dev/draining: REVISION.ATTEMPT.SECONDS.ID, and .h after a
// leader has handed over. A node may not change its own taints, but may change its annotations: therefore it is a taint.
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

// defaultDrainTimeout is the default of spec.strategy.drainOptions.timeoutSeconds.
const defaultDrainTimeout = 900

// DrainOptionsOf returns the options of a rollout's drains, with their defaults.
func DrainOptionsOf(s *v1alpha1.RolloutStrategy) v1alpha1.DrainOptions {
	var o v1alpha1.DrainOptions
	if s.DrainOptions != nil {
		o = *s.DrainOptions
	}
	o.TimeoutSeconds = cmp.Or(o.TimeoutSeconds, defaultDrainTimeout)
	o.UnmanagedPods = cmp.Or(o.UnmanagedPods, v1alpha1.DrainRefuse)
	o.LocalData = cmp.Or(o.LocalData, v1alpha1.DrainRefuse)
	o.ReleaseAfter = cmp.Or(o.ReleaseAfter, v1alpha1.ReleaseHealthy)
	return o
}

// setDrain sets the fields of a policy about drains.
func setDrain(p *rollout.Policy, s *v1alpha1.RolloutStrategy) {
	o := DrainOptionsOf(s)
	p.DrainTimeout = time.Duration(o.TimeoutSeconds) * time.Second
	p.ReleaseAfterTrial = o.ReleaseAfter == v1alpha1.ReleaseTrial
	switch s.Drain {
	case v1alpha1.DrainWhenBlocked:
		p.Drain = rollout.DrainWhenBlocked
	case v1alpha1.DrainAlways:
		p.Drain = rollout.DrainAlways
	default:
		p.Drain = rollout.DrainNever
	}
}

// Drains reports whether a rollout drains nodes.
func Drains(s *v1alpha1.NodeConfigRolloutSpec) bool {
	return s.Strategy.Drain == v1alpha1.DrainWhenBlocked || s.Strategy.Drain == v1alpha1.DrainAlways
}

// checkDrain returns an error if a rollout drains nodes and the controller may not. Before the controller has asked for its
// permissions, other programs assume that it may.
func checkDrain(s *v1alpha1.NodeConfigRolloutSpec, settings Settings) error {
	if !Drains(s) || settings.Drain == nil || *settings.Drain {
		return nil
	}
	return fmt.Errorf("spec.strategy.drain is %s, but the controller may not evict pods or patch Nodes: grant it with kubectl apply -k config/drain (or helm upgrade with --set drain.enabled=true), or set drain to Never", s.Strategy.Drain)
}
