package policy

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Times is how long the controller waits for nodes, in every rollout.
type Times struct {
	Agent    time.Duration // to take up an assignment, while the Node is Ready
	NotReady time.Duration // that a node may be NotReady for before it has failed
}

// DefaultTimes are those of the controller's flags.
var DefaultTimes = Times{Agent: time.Minute, NotReady: 30 * time.Second}

// Settings are what the controller's flags set for every rollout.
type Settings struct {
	Namespace string // of the revisions' ConfigMaps and of the controller's Lease
	Times     Times
}

// DefaultSettings are those of the controller's flags.
var DefaultSettings = Settings{Namespace: v1alpha1.SystemNamespace, Times: DefaultTimes}

// Publish returns settings as the controller writes them into the status of every rollout.
func (s Settings) Publish() *v1alpha1.RolloutController {
	return &v1alpha1.RolloutController{
		Namespace: s.Namespace, AgentTimeout: metav1.Duration{Duration: s.Times.Agent}, NotReadyGrace: metav1.Duration{Duration: s.Times.NotReady},
	}
}

// SettingsOf returns the settings that the controller published in a rollout, else those that it published in others: there
// is one controller for all rollouts, and it may not have seen this one yet. Without any, they are the defaults.
func SettingsOf(r *v1alpha1.NodeConfigRollout, others []v1alpha1.NodeConfigRollout) Settings {
	if c := r.Status.Controller; c != nil {
		return Settings{Namespace: c.Namespace, Times: Times{Agent: c.AgentTimeout.Duration, NotReady: c.NotReadyGrace.Duration}}
	}
	return SettingsIn(others)
}

// SettingsIn returns the settings that the controller published in any of these rollouts; without any, the defaults.
func SettingsIn(all []v1alpha1.NodeConfigRollout) Settings {
	for i := range all {
		if all[i].Status.Controller != nil {
			return SettingsOf(&all[i], nil)
		}
	}
	return DefaultSettings
}
