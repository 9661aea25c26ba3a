// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// deny has an admission policy refuse an operation on the NodeConfigs with this
// prefix until the returned function is called. Nodes may update theirs.
func (s *scenario) deny(prefix string, operation admissionv1.OperationType) (end func()) {
	s.t.Helper()
	name := s.name + "-" + strings.ToLower(string(operation))
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{operation},
			Rule:       admissionv1.Rule{APIGroups: []string{v1alpha1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"nodeconfigs"}},
		}}}},
		MatchConditions: []admissionv1.MatchCondition{{Name: "these", Expression: `object.metadata.name.startsWith("` + prefix + `") && (request.operation == "CREATE" || !request.userInfo.username.startsWith("system:node:"))`}},
		Validations:     []admissionv1.Validation{{Expression: "false", Message: "change freeze 4711"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	ctx := s.t.Context()
	s.do(kube.Create(ctx, policy))
	s.do(kube.Create(ctx, binding))
	probe := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: prefix + "-probe"}}
	s.until("the policy is enforced", func() (string, bool) {
		err := kube.Create(ctx, probe.DeepCopy(), client.DryRunAll)
		if operation == admissionv1.Update {
			nc := s.nodeConfig(prefix + "0")
			nc.Labels = map[string]string{"a": "b"}
			err = kube.Update(ctx, nc, client.DryRunAll)
		}

		return "it is not", err != nil && strings.Contains(err.Error(), "change freeze")
	})

	return func() {
		s.t.Helper()
		s.do(kube.Delete(ctx, binding))
		s.do(kube.Delete(ctx, policy))
	}
}

// An admission policy or a webhook refuses what the controller writes: the
// status says so, and nodes that are not concerned do not wait.
func TestRefusedWritesToNodesAreInTheStatus(t *testing.T) {
	t.Parallel()
	s := play(t, "refused", 8)
	says := func(words string) check {
		return that("the status says "+words, func(st *status) bool {
			_, message, _ := strings.Cut(st.Message, "; writes to nodes fail: ")
			reason, why := degraded(st)
			return strings.Contains(message, words) && strings.HasSuffix(message, "change freeze 4711") &&
				reason == "WriteFailed" && strings.Contains(why, "change freeze 4711")
		})
	}
	asExpected := that("nothing is degraded", func(st *status) bool {
		return meta.IsStatusConditionFalse(st.Conditions, v1alpha1.ConditionDegraded)
	})

	end := s.deny(s.node(7), admissionv1.Create)
	s.do(kube.Delete(t.Context(), s.nodeConfig(s.node(7))))
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}`)
	r.await(says("create nodeconfigs.evenkeel.dev/v1alpha1"), updated(7))
	end()
	r.await(at(1, v1alpha1.RolloutComplete), updated(8), asExpected)

	end = s.deny(s.name+"-", admissionv1.Update)
	r.push("maxPods: 102")
	r.await(at(2, v1alpha1.RolloutProgressing), says("write the spec of NodeConfig refused-"))
	end()
	r.await(at(2, v1alpha1.RolloutComplete), updated(8), asExpected)
}
