package policy

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Times are the controller's timeouts, for every rollout.
type Times struct {
	Agent    time.Duration // for an agent to accept an assignment, while the Node is Ready
	NotReady time.Duration // for how long a node may be NotReady before it counts as failed
}

// DefaultTimes are the defaults of the controller's flags.
var DefaultTimes = Times{Agent: time.Minute, NotReady: 30 * time.Second}

// Settings are the controller's flags that affect plans.
type Settings struct {
	Namespace string // of the revisions' ConfigMaps and of the controller's Lease
	Times     Times
	Drain     *bool // whether the controller may evict pods and patch Nodes; nil: it has not asked
	// Maintenance are keys of taints and types of conditions, besides the usual ones, with which others announce that they work
	// on a node.
	Maintenance []string
	// PrometheusServers are the names of the servers that gates can name; nil: not known.
	PrometheusServers []string
}

// DefaultSettings are the defaults of the controller's flags.
var DefaultSettings = Settings{Namespace: v1alpha1.SystemNamespace, Times: DefaultTimes}

// Publish returns settings for the status of every rollout.
func (s Settings) Publish() *v1alpha1.RolloutController {
	return &v1alpha1.RolloutController{
		Namespace: s.Namespace, AgentTimeout: metav1.Duration{Duration: s.Times.Agent}, NotReadyGrace: metav1.Duration{Duration: s.Times.NotReady},
		Drain: s.Drain, Maintenance: s.Maintenance,
		PrometheusServers: s.PrometheusServers,
	}
}

// SettingsOf returns the settings that the controller published in a rollout, else in another one: one controller runs all
// rollouts, and may not have processed this one yet. Without any, it returns the defaults.
func SettingsOf(r *v1alpha1.NodeConfigRollout, others []v1alpha1.NodeConfigRollout) Settings {
	if c := r.Status.Controller; c != nil {
		return Settings{
			Namespace: c.Namespace, Times: Times{Agent: c.AgentTimeout.Duration, NotReady: c.NotReadyGrace.Duration},
			Drain: c.Drain, Maintenance: c.Maintenance, PrometheusServers: append([]string{}, c.PrometheusServers...),
		}
	}
	return SettingsIn(others)
}

// SettingsIn returns the settings that the controller published in one of these rollouts, else the defaults.
func SettingsIn(all []v1alpha1.NodeConfigRollout) Settings {
	for i := range all {
		if all[i].Status.Controller != nil {
			return SettingsOf(&all[i], nil)
		}
	}
	return DefaultSettings
}
