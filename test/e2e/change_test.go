package e2e

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var getOptions = metav1.GetOptions{}

func TestAGoodChangeShowsInTheNodeAndBecomesLastKnownGood(t *testing.T) {
	n := newNode(t, "good", "--config-trial-duration=2s")
	n.up()
	n.says("True", "LocalInit", "using current (init): current is set to the local default, and an init config was provided")

	cm := n.configMap("a", map[string]any{"maxPods": 120})
	n.assign(cm)
	nc := n.says("True", "AllChecksPassed", fmt.Sprintf("using current (UID: %s): all checks passed", cm.UID))
	if nc.Status.Active == nil || nc.Status.Active.UID != cm.UID || nc.Status.ObservedGeneration != nc.Generation {
		t.Errorf("active is %+v at generation %d of %d", nc.Status.Active, nc.Status.ObservedGeneration, nc.Generation)
	}
	n.eventually("the capacity follows", func(ctx context.Context) error {
		pods, err := n.MaxPods(ctx)
		if err == nil && pods != 120 {
			err = fmt.Errorf("capacity is %d", pods)
		}
		return err
	})
	n.eventually("the kubelet's own /configz has it", func(ctx context.Context) error {
		config, err := n.KubeletConfigz(ctx)
		if err == nil && config["maxPods"] != 120.0 {
			err = fmt.Errorf("maxPods is %v", config["maxPods"])
		}
		return err
	})
	n.lastKnownGood(cm)

	obj, err := n.Kube.CoreV1().Nodes().Get(t.Context(), n.Node.Name(), getOptions)
	if err != nil {
		t.Fatal(err)
	}
	var found bool
	for _, c := range obj.Status.Conditions {
		if c.Type == "ConfigOK" {
			found = true
			if c.Status != "True" || c.Reason != "all checks passed" || c.Message != fmt.Sprintf("using current (UID: %s)", cm.UID) {
				t.Errorf("the Node's condition is %+v", c)
			}
		}
	}
	if !found {
		t.Error("the Node has no condition ConfigOK")
	}
}
