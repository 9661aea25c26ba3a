// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAStartProbeNeedsATrial(t *testing.T) {
	for _, o := range []assignOptions{
		{startProbe: agentImage, local: true, until: untilProven, agentTimeout: time.Minute},
		{startProbe: agentImage, file: "f", until: untilAssigned, agentTimeout: time.Minute},
	} {
		err := o.check(false)
		assert.Must(t, err != nil, "%+v is accepted", o)
		assert.Equal(t, err.Error(), "--start-probe needs a configuration that runs on trial: it cannot be used with --local or --for=assigned")
	}
}

func TestTheAgeOfAPodIsOfTheAPIServersClock(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	nc := &v1alpha1.NodeConfig{}
	assert.Equal(t, clockOffset(nc, now), 0, "without a time")
	for _, written := range []time.Duration{-time.Hour, 3 * time.Minute} {
		nc.ManagedFields = append(nc.ManagedFields, metav1.ManagedFieldsEntry{Time: &metav1.Time{Time: now.Add(written)}})
		assert.Equal(t, clockOffset(nc, now), written, "the offset")
	}
}
