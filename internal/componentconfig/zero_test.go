package componentconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/internal/localcluster"
)

func tree(t *testing.T, text string) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

func TestWithoutTheZeroesOfTheRealKubeadmWhatIsGeneratedIsLeft(t *testing.T) {
	uploaded := upload(t, localcluster.KubeadmConfig(addressV4, v1beta4("")))
	cc := clusterConfiguration(t, "")
	for _, c := range Components() {
		ours, err := derive(c, cc)
		if err != nil {
			t.Fatal(err)
		}
		kubeadms := WithoutZeroes(c, tree(t, uploaded[c.ConfigMap].Data[c.Key]))
		if diff := cmp.Diff(tree(t, ours), kubeadms); diff != "" {
			t.Errorf("%s (-ours +kubeadm's):\n%s", c.Name, diff)
		}
	}
}

func TestWhatIsZeroOnPurposeStays(t *testing.T) {
	text := "{eventRecordQPS: 0, registerNode: false, resolvConf: '', tracing: {}, maxPods: 5, syncFrequency: 0s, memorySwap: {swapBehavior: NoSwap}, logging: {verbosity: 0, format: json}, crashLoopBackOff: {}}"
	want := "{eventRecordQPS: 0, registerNode: false, resolvConf: '', tracing: {}, maxPods: 5, memorySwap: {swapBehavior: NoSwap}, logging: {format: json}}"
	fields := tree(t, text)
	if diff := cmp.Diff(tree(t, want), WithoutZeroes(Components()[0], fields)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(tree(t, text), fields); diff != "" {
		t.Errorf("what was given changed: %s", diff)
	}
}
