package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/describe"
)

// A watch reads all nodes again after an error of its first round.
func TestNodesThatAreReadAgainAreComparedOnce(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"pool": "x"}}},
		&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: v1alpha1.NodeConfigStatus{AgentVersion: "v1"}},
	).Build()
	o := nodesOptions{drift: true, compared: &driftRows{}}
	for range 2 {
		err := (&app{}).eachNode(t.Context(), c, o, labels.SelectorFromSet(labels.Set{"pool": "x"}), func(describe.Row) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if got := o.compared; got.agents != 1 || got.silent != 1 {
			t.Fatalf("counted %+v", got)
		}
	}
}
