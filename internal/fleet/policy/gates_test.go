package policy

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// gatedRollout is a rollout with one gate.
func gatedRollout(change func(*v1alpha1.RolloutGate)) *v1alpha1.NodeConfigRollout {
	g := v1alpha1.RolloutGate{Name: "errors", Prometheus: v1alpha1.PrometheusGate{Server: "main", Query: "up", Passes: "< 0.01"}}
	change(&g)
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: v1alpha1.NodeConfigRolloutSpec{AllNodes: true}}
	r.Spec.Strategy.Gates = []v1alpha1.RolloutGate{g}
	return r
}

func TestGatesAreConverted(t *testing.T) {
	defaults := rollout.Gate{Name: "errors", Server: "main", Query: "up", Passes: rollout.Comparison{Operator: "<", Number: 0.01}, Interval: time.Minute, Failures: 1}
	all := rollout.Gate{
		Name: "errors", Server: "other", Query: "up", Passes: rollout.Comparison{Operator: ">=", Number: -1.5e3}, Interval: time.Hour,
		Always: true, Failures: 3, NoDataFails: true,
	}
	for _, test := range []struct {
		change func(*v1alpha1.RolloutGate)
		want   rollout.Gate
	}{
		{func(*v1alpha1.RolloutGate) {}, defaults},
		{func(g *v1alpha1.RolloutGate) {
			g.Prometheus.Server, g.Prometheus.Passes = "other", ">=-1.5e3"
			g.Interval, g.Every, g.Failures, g.NoData = &metav1.Duration{Duration: time.Hour}, v1alpha1.GateAlways, 3, v1alpha1.GateNoDataFail
		}, all},
	} {
		p, err := FromSpec(gatedRollout(test.change), DefaultTimes, then)
		assert.That(t, err == nil && reflect.DeepEqual(p.Gates, []rollout.Gate{test.want}), "got %+v, %v; want %+v", p.Gates, err, test.want)
	}
}

func TestInvalidGatesAreRefused(t *testing.T) {
	for _, passes := range []string{"", "0.01", "< ", "<  1", "=> 1", "< 1.", "< .5", "< 1e9999", "< NaN", "< 1 or vector(0)", "=1", "< 0x10", "< 1e999"} {
		_, err := FromSpec(gatedRollout(func(g *v1alpha1.RolloutGate) { g.Prometheus.Passes = passes }), DefaultTimes, then)
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), "spec.strategy.gates[0].prometheus.passes: "), "%q: got %v", passes, err)
	}
	for _, interval := range []time.Duration{0, 9 * time.Second, 25 * time.Hour, -time.Minute} {
		_, err := FromSpec(gatedRollout(func(g *v1alpha1.RolloutGate) { g.Interval = &metav1.Duration{Duration: interval} }), DefaultTimes, then)
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), "spec.strategy.gates[0].interval must be from 10s to 24h0m0s"),
			"%s: got %v", interval, err)
	}
}

func TestAGateAtAnUnknownServerIsInvalid(t *testing.T) {
	published := func(servers ...string) Settings {
		r := &v1alpha1.NodeConfigRollout{}
		r.Status.Controller = Settings{Namespace: "n", Times: DefaultTimes, PrometheusServers: servers}.Publish()
		return SettingsOf(r, nil)
	}
	for _, test := range []struct {
		name     string
		settings Settings
		want     string
	}{
		{"known", published("a", "main"), ""},
		{"not published", DefaultSettings, ""},
		{"none", published(), "spec.strategy.gates[0].prometheus.server: the controller has no Prometheus server: start it with --prometheus-server=main=URL"},
		{"others", published("a", "b"), `spec.strategy.gates[0].prometheus.server: the controller has no Prometheus server "main", only a, b: name one of these, or start it with --prometheus-server=main=URL`},
	} {
		r := gatedRollout(func(*v1alpha1.RolloutGate) {})
		p, _ := Build(Input{Rollout: r, Template: Template{Content: Content{SHA256: digest("x")}}, Settings: test.settings, Now: then})
		assert.Equal(t, p.Invalid, test.want, test.name)
	}
}

func TestGatesInTheStatusAreRemembered(t *testing.T) {
	st := &v1alpha1.NodeConfigRolloutStatus{Gates: []v1alpha1.GateStatus{
		{Name: "errors", State: v1alpha1.GateFailing, Value: "0.5", Time: new(metav1.NewTime(then)), Failures: 2, Step: 1, Message: "m"}, {Name: "new", State: v1alpha1.GatePending},
	}}
	want := []rollout.GateProgress{
		{Name: "errors", State: rollout.GateFailing, Value: "0.5", Time: then, Failures: 2, Step: 1, Message: "m"}, {Name: "new", State: rollout.GatePending},
	}
	if got := ProgressOf(st).Gates; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if got := RecordedInStatus(st); !got.Equal(then) {
		t.Errorf("the newest recorded time is %s", got)
	}
}

func TestTheDocumentedGatesAreValid(t *testing.T) {
	page := assert.Value(os.ReadFile("../../../docs/rollouts.md"))(t)
	_, block, _ := strings.Cut(string(page), "```yaml\ngates:\n")
	block, _, _ = strings.Cut(block, "```")
	r := gatedRollout(func(*v1alpha1.RolloutGate) {})
	assert.NoError(t, yaml.UnmarshalStrict([]byte("gates:\n"+block), &r.Spec.Strategy))
	p, err := FromSpec(r, DefaultTimes, then)
	assert.That(t, err == nil && len(p.Gates) >= 5, "got %+v, %v", p.Gates, err)
}
