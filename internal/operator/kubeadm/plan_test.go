// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// judge is a real program. It validates each configuration once in all tests: a
// dry run takes a second, and gives the same verdict again.
type judge struct{ component.Component }

var verdicts sync.Map // by the component and the configuration

func (j judge) Validate(ctx context.Context, data []byte) component.Verdict {
	key := j.Name() + "\n" + string(data)
	if v, ok := verdicts.Load(key); ok {
		return v.(component.Verdict)
	}

	v := j.Component.Validate(ctx, data)
	verdicts.Store(key, v)

	return v
}

// judges are the real programs.
func judges(t *testing.T) map[string]component.Component {
	t.Helper()
	all := map[string]component.Component{}
	for _, c := range Components() {
		binary := assert.Value(component.New(c.Name, "../../../bin/tools/"+c.Name, t.TempDir(), slog.New(slog.DiscardHandler)))(t)
		all[c.Name] = judge{binary}
	}

	return all
}

// makePlan plans for what the cluster has now, and for a version whose format is
// that of the programs, because it has the same minor version.
func makePlan(t *testing.T, input *Input, binaries map[string]component.Component) *Plan {
	t.Helper()
	existing := assert.Value(Gather(t.Context(), admin))(t)
	return assert.Value(MakePlan(t.Context(), existing, input, "v1.37.9", binaries, Options{}))(t)
}

// rewrite puts text in the place of a configuration, and makes it of an origin.
func rewrite(t *testing.T, cm *corev1.ConfigMap, c Component, text string, origin Origin) {
	t.Helper()
	signed := cm.DeepCopy()
	cm.Data[c.Key] = text
	switch origin {
	case Generated: // as a kubeadm of then would have done it
		signed.Data[c.Key] = text
		cm.Annotations = map[string]string{KubeadmSignature: Signature(signed)}
	case UserSupplied:
		Unsign(cm)
	case UserModified:
		cm.Data[c.Key] += "# by hand\n"
	}

	assert.NoError(t, admin.Update(t.Context(), cm))
}

// gone are fields that were in a version of the format and are in no other any
// more.
var gone = map[string]string{"kubelet": "dynamicConfigDir: /var/lib/kubelet/dynamic\n", "kube-proxy": "udpIdleTimeout: 0s\n"}

func TestPlanOfEveryOriginOfEveryComponentInEveryState(t *testing.T) {
	binaries := judges(t)
	for _, c := range Components() {
		for _, origin := range []Origin{Generated, UserSupplied, UserModified} {
			for _, state := range []struct {
				name    string
				of      func(text string) string
				version string // of the format that the cluster has; "" is the preferred one
				words   string // of the component, if nothing was generated anew
			}{
				{"supported", func(text string) string { return text }, "", ""},
				{"an unsupported version", func(text string) string {
					return strings.Replace(text, c.Group+"/v1", c.Group+"/v3", 1)
				}, "v3", fmt.Sprintf("no kind %q is registered for version \"%s/v3", c.Kind, c.Group)},
				{"a field that is gone", func(text string) string { return text + gone[c.Name] }, "", "unknown field " + `"` + strings.SplitN(gone[c.Name], ":", 2)[0] + `"`},
			} {
				t.Run(fmt.Sprintf("%s %s, %s", origin, c.Name, state.name), func(t *testing.T) {
					uploaded := upload(t, localcluster.KubeadmConfig(addressV4, v1beta4("")))
					cm := uploaded[c.ConfigMap]
					text := strings.TrimSuffix(cm.Data[c.Key], "\n") + "\n"
					preferred := apiVersionOf([]byte(text))
					rewrite(t, cm, c, state.of(text), origin)

					p := makePlan(t, nil, binaries)
					i := slices.IndexFunc(p.Components, func(r Row) bool { return r.Component == c.Name })
					row, change := p.Components[i], p.Changes[i]
					assert.That(t, row.Origin == origin && row.PreferredVersion == preferred && strings.HasPrefix(row.CurrentVersion, c.Group+"/"+state.version),
						"it is %s, %s, preferred %s", row.Origin, row.CurrentVersion, row.PreferredVersion)
					assert.Equal(t, row.ValidatedBy, c.Name+" v1.37.2", "validated by")
					byHand := origin != Generated && state.words != ""
					switch {
					case byHand:
						assert.That(t, row.ManualUpgrade == ManualYes && row.Validation == Rejected && row.Action == Keep && change.Write == nil &&
							strings.Contains(strings.Join(row.Objections, "\n"), state.words), "%+v", row)
					case origin == Generated:
						assert.That(t, row.ManualUpgrade == ManualNo && row.Validation == Accepted && row.Action == Regenerate && row.NextVersion == preferred && (change.Write != nil) == (state.words != ""), "%+v", row)
					default:
						assert.That(t, row.ManualUpgrade == ManualNo && row.Validation == Accepted && row.Action == Keep && change.Write == nil, "%+v", row)
					}

					assert.Equal(t, p.NeedsManualUpgrade(), byHand, "hands are needed")
					assert.NoError(t, Store(t.Context(), admin, "v1.37.2", p.Writes()))
					t.Cleanup(func() { deleteRecords(t) })
					is, why := OriginOf(configMaps(t)[c.ConfigMap])
					assert.That(t, is == origin, "after it was stored it is %s: %s", is, why)
					again := makePlan(t, nil, binaries).Writes()
					assert.That(t, len(again) == 0, "planned again it would write %v", again)
				})
			}
		}
	}
}

func TestParseTargetReadsOnlyKubernetesVersions(t *testing.T) {
	for s, want := range map[string]string{"v1.37.2": "v1.37.2", "1.38.0": "v1.38.0", "v1.38.0-rc.1": "v1.38.0-rc.1", "1.37": "", "stable": "", "": ""} {
		got, err := ParseTarget(s)
		assert.That(t, got == want && (err == nil) == (want != ""), "%q: %q, %v", s, got, err)
	}
}

func TestAGivenConfigurationThatIsNotValidatedMayNeedHands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubelet")
	const mute = "#!/bin/sh\ncase \"$*\" in *--version*) echo 'Kubernetes v1.37.2'; exit 0;; esac\necho 'not today' >&2\nexit 1\n"
	assert.NoError(t, os.WriteFile(path, []byte(mute), 0o755))
	kubelet := assert.Value(component.New("kubelet", path, t.TempDir(), slog.New(slog.DiscardHandler)))(t)
	given := &Input{Configs: map[string]Document{"kubelet": {Text: []byte(kubeletDocument)}}, Endpoint: "192.0.2.10:6443"}
	for validation, judges := range map[Validation]map[string]component.Component{Unvalidated: nil, CouldNotTell: {"kubelet": kubelet}} {
		p := assert.Value(MakePlan(t.Context(), clusterWith(t), given, "v1.37.2", judges, Options{}))(t)
		row := p.Components[0]
		assert.That(t, row.Validation == validation && row.ManualUpgrade == ManualUnknown && row.PreferredVersion == "" &&
			len(row.Warnings) != 0 && !p.NeedsManualUpgrade(), "%+v", row)
		assert.Equal(t, len(p.NotValidated()) > 0, validation == CouldNotTell, "some are not settled")
	}
}

func TestAClusterConfigurationThatTheTargetsKubeadmCannotReadIsAnError(t *testing.T) {
	old := strings.Replace(v1beta4(""), "v1beta4", "v1beta3", 1)
	const refused = `kubeadm 1.37 cannot read kubeadm.k8s.io/v1beta3, the version of the ClusterConfiguration in f.yaml: convert it to kubeadm.k8s.io/v1beta4 with "kubeadm config migrate" of 1.36`
	for _, tt := range []struct{ document, target, want string }{
		{old, "v1.37.0", refused},
		{old, "v1.36.9", "<nil>"},
		{old, "", "<nil>"},
		{v1beta4(""), "v1.37.0", "<nil>"},
	} {
		input := assert.Value(ParseFile("f.yaml", []byte(tt.document)))(t)
		p, err := MakePlan(t.Context(), clusterWith(t), input, tt.target, nil, Options{})
		assert.That(t, fmt.Sprint(err) == tt.want && (err != nil || p.ClusterConfiguration != nil),
			"%s of %.40q: %+v, %v", tt.target, tt.document, p, err)
	}
}
