// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func TestControlCharactersInStatusAreEscaped(t *testing.T) {
	api := newAPI(t)
	const evil = "v1\x1b[31m\n\u009b2J\u202ex\u2066\u200b\u2028\U000e0041\x7f"
	rev := api.AddRolledOut("hostile", func(r *v1alpha1.NodeConfigRollout) {
		r.Status.Message, r.Status.Phase = evil, v1alpha1.RolloutProgressing
		r.Status.FailedNodes = []v1alpha1.FailedNode{{Name: evil, Reason: evil, Message: evil}}
		r.Status.History = []v1alpha1.RolloutOutcome{{Revision: 7, ConfigMap: "hostile-7", Outcome: "Halted", Message: evil}}
	})
	api.AddAgent("hostile-a", "hostile", fakeapi.ByRollout("hostile", 1, rev, nil), func(st *v1alpha1.NodeConfigStatus) {
		fakeapi.Failing(st, v1alpha1.ReasonCrashLooped, evil)
		st.Conditions[0].Message, st.AgentVersion, st.ComponentVersion = evil, evil, evil
		st.Active = &v1alpha1.ConfigRevision{Namespace: evil, Name: evil, UID: "u", SHA256: strings.Repeat("0", 64)}
		st.LastKnownGood = &v1alpha1.LastKnownGoodConfig{ConfigRevision: *st.Active}
		st.Trial = &v1alpha1.Trial{DurationSeconds: 600}
		st.BadConfigs = []v1alpha1.BadConfig{{UID: "u", Namespace: evil, Name: evil, Revision: evil, Reason: evil}}
		st.OverriddenFields = []string{evil}
	})
	content := api.AddRevision("reordered", 1, fmt.Sprintf("# a\u202eb\u200bc\u2066\nmaxPods: 7\nclusterDomain: %q\n", evil))
	api.AddRollout("reordered", "reordered", nil, func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = fakeapi.Follow(content.Namespace, content.Name)
		r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: fakeapi.RefTo(content)}
	})
	for _, command := range []string{
		"nodes", "nodes -o wide", "nodes --rollout hostile -o wide", "node hostile-a", "config diff node/hostile-a rollout/hostile", "config diff rollout/hostile@7 rollout/hostile",
		"rollout status hostile", "rollout status hostile -o wide", "rollout status hostile -w --timeout 1s", "rollout list -o wide", "rollout history hostile -o wide",
		"rollout plan hostile", "rollout undo hostile --to-revision 7",
		"rollout history reordered --revision 1", "rollout history reordered --revision 1 -o yaml", "rollout history reordered --revision 1 -o json",
		"rollout history hostile -o yaml", "rollout history hostile -o json", "nodes -o yaml", "nodes -o json", "node hostile-a -o yaml", "node hostile-a -o json",
		"rollout list -o yaml", "rollout list -o json", "rollout status hostile -o yaml", "rollout status hostile -o json",
		"rollout status hostile -w --timeout 1s -o yaml", "rollout status hostile -w --timeout 1s -o json", "doctor", "version",
	} {
		got := api.Run(strings.Fields(command)...)
		said := got.Out + got.Err
		assert.That(t, printable.Clean([]byte(said)) && said != "", "%s: %q", command, said)
	}

	got := api.Run("rollout", "history", "reordered", "--revision", "1")
	want := "# a\\u202eb\\u200bc\\u2066\nmaxPods: 7\n"
	assert.That(t, strings.Contains(got.Out, want), "the content is %q, want in it %q; %s", got.Out, want, got.Err)

	// What programs read means the same.
	for _, f := range []string{"yaml", "json"} {
		var read corev1.ConfigMap
		assert.NoError(t, yaml.Unmarshal([]byte(api.Run("rollout", "history", "reordered", "--revision", "1", "-o", f).Out), &read), f)
		assert.NoDiff(t, cmp.Diff(content.Data, read.Data), f)
	}
}

func TestAgesAreNeverNegative(t *testing.T) {
	api := newAPI(t)
	api.AddAgent("ahead", "ahead", nil, func(st *v1alpha1.NodeConfigStatus) {
		st.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(time.Minute))
	})
	api.Run("nodes", "-l", "pool=ahead").WantOutput(t, "True/AllChecksPassed - 0s\n")
	api.Run("node", "ahead").WantOutput(t, "AllChecksPassed, since 0s ago: ")
}
