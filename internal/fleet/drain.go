// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
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
