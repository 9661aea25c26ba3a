// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var then = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// held is the stripped ConfigMap of a revision of rollout "r" with this
// content.
func held(text string, number string, uid types.UID) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.SystemNamespace, Name: RevisionName("r", digest(text)), UID: uid, CreationTimestamp: metav1.NewTime(then),
			Labels: map[string]string{v1alpha1.LabelRollout: "r", v1alpha1.LabelRevision: number},
		},
		Immutable: new(true), Data: map[string]string{"kubelet": text},
	}
	StripRevision(cm)

	return cm
}

func digest(text string) string { return payload.Digest("kubelet", []byte(text)) }

func revisionNamed(number int64, cm *corev1.ConfigMap) *v1alpha1.RolloutRevision {
	return &v1alpha1.RolloutRevision{Number: number, ConfigMapRef: v1alpha1.ConfigMapReference{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, SHA256: PayloadDigest(cm)}}
}

func byName(all ...*corev1.ConfigMap) map[string]*corev1.ConfigMap {
	out := map[string]*corev1.ConfigMap{}
	for _, cm := range all {
		out[cm.Name] = cm
	}

	return out
}

func TestAStrippedRevisionKeepsTheDigestOfItsContent(t *testing.T) {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"evenkeel.dev/payload-sha256": digest("real")}},
		Data:       map[string]string{"kubelet": "planted"},
	}
	for range 2 { // an informer may strip what is stripped
		StripRevision(cm)
		assert.That(t, cm.Annotations[AnnotationDigest] == digest("planted") && len(cm.Annotations) == 1 && cm.Data == nil, "the cache has %+v", cm)
	}

	empty := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"evenkeel.dev/payload-sha256": digest("real")}}}
	StripRevision(empty)
	assert.That(t, empty.Annotations[AnnotationDigest] == "", "of what holds nothing the cache has %+v", empty)
}

func TestLastSucceededIsIdentifiedByUIDAndSHA256(t *testing.T) {
	good := held("good", "1", "u1")
	target := &v1alpha1.ConfigMapReference{Name: "r-target", UID: "u2", SHA256: "target"}
	for name, test := range map[string]struct {
		now  map[string]*corev1.ConfigMap
		gone bool
	}{
		"it is there":                 {byName(good), false},
		"it is gone":                  {byName(), true},
		"another object in its place": {byName(held("good", "1", "planted")), true},
	} {
		st := v1alpha1.NodeConfigRolloutStatus{CurrentRevision: revisionNamed(1, good)}
		got, gone := lastSucceeded(&st, test.now, target)
		assert.That(t, got.Number == 1 && got.ConfigMapRef.UID == "u1" && gone == test.gone,
			"%s: by status.currentRevision it is %+v, gone %v", name, got, gone)

		past := v1alpha1.RolloutOutcome{Revision: 1, ConfigMap: good.Name, UID: "u1", SHA256: digest("good"), Outcome: v1alpha1.OutcomeSucceeded}
		got, _ = lastSucceeded(&v1alpha1.NodeConfigRolloutStatus{History: []v1alpha1.RolloutOutcome{past}}, test.now, target)
		assert.That(t, (got.Number == 0) == test.gone && (test.gone || got.ConfigMapRef.UID == "u1"),
			"%s: by status.history it is %+v", name, got)
	}
}

func TestThePolicyNamesTheRevisionsThatExist(t *testing.T) {
	p := Build(Objects{Rollout: &v1alpha1.NodeConfigRollout{}, Revisions: byName(held("b", "2", "u2"), held("a", "1", "u1")), Settings: DefaultSettings, Now: then})
	want := []types.UID{"u1", "u2"}
	assert.That(t, slices.Equal(p.Revisions, want), "got %q, want %q", p.Revisions, want)
	p = Build(Objects{Rollout: &v1alpha1.NodeConfigRollout{}, Settings: DefaultSettings, Now: then})
	assert.That(t, p.Revisions != nil, "without ConfigMaps the revisions are not known")
}

func TestTheProgressDeadlineIsTheRolloutsOrAnHour(t *testing.T) {
	r := &v1alpha1.NodeConfigRollout{}
	for seconds, want := range map[int32]time.Duration{0: time.Hour, 10: 10 * time.Second} {
		r.Spec.ProgressDeadlineSeconds = seconds
		p := Build(Objects{Rollout: r, Settings: DefaultSettings, Now: then})
		assert.Equal(t, time.Duration(p.Spec.ProgressDeadlineSeconds)*time.Second, want, "the progress deadline of", seconds)
	}
}

func TestTheLastNumberHasNoNext(t *testing.T) {
	o := &v1alpha1.NodeConfigRollout{}
	o.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: math.MaxInt64}
	next := Template{Content: payload.Payload{Key: "kubelet", Data: []byte("next"), SHA256: digest("next")}}
	assert.ErrorHas(t, assert.Err(targetOf(Objects{Rollout: o, Template: next, Settings: DefaultSettings})),
		"has used the highest revision number", "after the last number")
}

func TestAPinReplacesTheTemplateWhileThatHasTheSameContent(t *testing.T) {
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	const template, older = head + "maxPods: 102\n", head + "maxPods: 101\n"
	whole := func(text string) *corev1.ConfigMap {
		cm := held(text, "1", "u1")
		cm.Annotations, cm.Data = nil, map[string]string{"kubelet": text}
		return cm
	}
	source := &corev1.ConfigMap{Data: map[string]string{"kubelet": template}}
	foreign := whole(older)
	foreign.Labels[v1alpha1.LabelRollout] = "another"
	withTrial := strings.Replace(older, "kubelet.config.k8s.io/v1beta1", "evenkeel.dev/v1alpha1", 1)
	withTrial = strings.Replace(withTrial, "maxPods: 101", "trial: {crashLoopThreshold: 2}", 1)
	for name, tt := range map[string]struct {
		pin    v1alpha1.RolloutPin
		pinned *corev1.ConfigMap
		want   string // the content
		err    string
	}{
		"in force":                      {v1alpha1.RolloutPin{SHA256: digest(older), Instead: digest(template)}, whole(older), older, ""},
		"with trial terms of its own":   {v1alpha1.RolloutPin{SHA256: digest(withTrial), Instead: digest(template)}, whole(withTrial), withTrial, ""},
		"the template has changed":      {v1alpha1.RolloutPin{SHA256: digest(older), Instead: digest("other")}, whole(older), template, ""},
		"which is gone as well":         {v1alpha1.RolloutPin{SHA256: digest(older), Instead: digest("other")}, nil, template, ""},
		"of the template itself":        {v1alpha1.RolloutPin{SHA256: digest(template), Instead: digest(template)}, nil, template, ""},
		"gone":                          {v1alpha1.RolloutPin{SHA256: digest(older), Instead: digest(template)}, nil, "", "there is no ConfigMap r-"},
		"another content in its place":  {v1alpha1.RolloutPin{SHA256: digest(older), Instead: digest(template)}, whole(template), "", "but another content"},
		"another rollout's":             {v1alpha1.RolloutPin{SHA256: digest(older), Instead: digest(template)}, foreign, "", "is not a revision of this rollout"},
		"it holds no configuration now": {v1alpha1.RolloutPin{SHA256: digest("x"), Instead: digest(template)}, whole("x"), "", "kubelet"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
			r.Spec.AllNodes = true
			r.Spec.Template.ConfigMapRef = &v1alpha1.TemplateConfigMap{Namespace: "ns", Name: "source"}
			r.Spec.Trial = &v1alpha1.TrialTerms{AllowPodLoss: true}
			r.Spec.Pin = &tt.pin
			got := TemplateOf(r, source, tt.pinned)
			if tt.err == "" {
				assert.That(t, got.Err == nil && got.Content.SHA256 == digest(tt.want) && got.Pinned == (tt.pin.Instead == digest(template)), "%+v", got)
				return
			}

			assert.Must(t, got.Err != nil && strings.Contains(got.Err.Error(), tt.err), "the error is %v, want %q", got.Err, tt.err)
			p := Build(Objects{Rollout: r, Template: got, Now: then, Settings: DefaultSettings})
			plan := rollout.Plan(p, nil)
			gone := false
			for _, c := range plan.Next.Conditions {
				gone = gone || c.Type == "Degraded" && c.Reason == "RevisionGone"
			}

			assert.That(t, gone && !p.PassPauses && strings.Contains(p.Invalid, "kubectl evenkeel rollout undo r --to-revision N"),
				"it says %q, conditions %+v", p.Invalid, plan.Next.Conditions)
		})
	}
}

func TestANodeIsReportedIfItsAgentHasWrittenAnything(t *testing.T) {
	answered := []metav1.Condition{{Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue}}
	for name, tt := range map[string]struct {
		status v1alpha1.NodeConfigStatus
		want   bool
	}{
		"nothing": {v1alpha1.NodeConfigStatus{}, false}, "its version": {v1alpha1.NodeConfigStatus{AgentVersion: "v1"}, true},
		"an answer": {v1alpha1.NodeConfigStatus{Conditions: answered}, true},
	} {
		n := NodeOf(&corev1.Node{}, &v1alpha1.NodeConfig{Status: tt.status})
		assert.That(t, n.Reported == tt.want && n.OtherSource == "", "%s: the node is %+v, want reported %t", name, n, tt.want)
	}
}

func TestATemplatesErrorNamesNothingOfAForeignConfigMap(t *testing.T) {
	for namespace, shown := range map[string]bool{"kube-system": false, v1alpha1.SystemNamespace: true} {
		for word, data := range map[string]map[string]string{
			"database-host": {"database-host": "10.7.7.7"}, "readOnlyPort": {"kubelet": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nreadOnlyPort: 1\nreadOnlyPort: 2\n"},
		} {
			template := v1alpha1.RolloutTemplate{ConfigMapRef: &v1alpha1.TemplateConfigMap{Namespace: namespace, Name: "a"}}
			_, err := ContentOf(template, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}, Data: data})
			assert.Must(t, err != nil, "%v of %s is accepted", data, namespace)
			assert.That(t, strings.Contains(err.Error(), word) == shown && strings.HasPrefix(err.Error(), "ConfigMap "+namespace+"/a: "), "%v", err)
		}
	}
}

func TestAnInvalidTemplateSaysWhatIsWrong(t *testing.T) {
	const both = "spec.trial and the payload (trial.allowPodLoss) both have trial settings: remove one of them"
	r := &v1alpha1.NodeConfigRollout{Spec: v1alpha1.NodeConfigRolloutSpec{Trial: &v1alpha1.TrialTerms{CrashLoopThreshold: new(int32(0))}}}
	r.Spec.Template.Kubelet = &runtime.RawExtension{Raw: []byte(
		`{"apiVersion":"evenkeel.dev/v1alpha1","kind":"KubeletConfiguration","trial":{"allowPodLoss":true}}`)}
	assert.ErrorHas(t, TemplateOf(r, nil, nil).Err, both)
	for field, want := range map[string]string{
		`"resolvConf":"resolv.conf"`: `resolvConf is the relative path "resolv.conf"`,
		`"registerWithTaints":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000): "nested more than 50 levels deep",
		`"kubeletCgroups":"/` + strings.Repeat("a", 1<<20) + `"`:                        "larger than",
	} {
		r := &v1alpha1.NodeConfigRollout{}
		r.Spec.Template.Kubelet = &runtime.RawExtension{Raw: []byte(
			`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration",` + field + `}`)}
		err := TemplateOf(r, nil, nil).Err
		assert.ErrorHas(t, err, "spec.template.kubelet: ")
		assert.ErrorHas(t, err, want)
		assert.ErrorHas(t, err, "; nothing changes until the template is corrected")
	}
}
