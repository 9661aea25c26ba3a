package payload

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAGroupedPayloadMayAskForATrialOfItsOwn(t *testing.T) {
	duration := func(d time.Duration) *time.Duration { return &d }
	threshold := func(n int) *int { return &n }
	for data, want := range map[string]Trial{
		"": {}, "trial: {}": {},
		"trial: {configTrialDuration: 1ns}":     {Duration: duration(1)},
		"trial: {configTrialDuration: 1h30m}":   {Duration: duration(90 * time.Minute)},
		"trial: {configTrialDuration: 168h}":    {Duration: duration(168 * time.Hour)},
		"trial: {crashLoopThreshold: 0}":        {CrashLoopThreshold: threshold(0)},
		"trial: {crashLoopThreshold: 10}":       {CrashLoopThreshold: threshold(10)},
		"trial: {allowPodLoss: true}":           {AllowPodLoss: true},
		"trial: {allowPodLoss: false}":          {},
		"trial: {configTrialDuration: \"10s\"}": {Duration: duration(10 * time.Second)},
	} {
		t.Run(data, func(t *testing.T) {
			p, err := Decode(KeyKubelet, []byte(grouped+data))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, p.Trial); diff != "" {
				t.Error(diff)
			}
			if _, ok := p.Fields["trial"]; ok {
				t.Error("the kubelet is shown the trial")
			}
		})
	}
}

func TestATrialThatCannotBeIsRefusedInWordsThatSayWhatIsAllowed(t *testing.T) {
	const (
		duration  = `trial.configTrialDuration: must be a duration over 0 and up to 168h, such as "30m", not `
		threshold = `trial.crashLoopThreshold: must be a whole number from 0 to 10, not `
		podLoss   = `trial.allowPodLoss: must be true or false, not `
	)
	for data, words := range map[string]string{
		"trial: null":                                       "trial: must be a mapping of fields, not null",
		"trial: [a]":                                        "trial: must be a mapping of fields, not a list",
		"trial: true":                                       "trial: must be a mapping of fields, not true",
		"trial: {configTrialDuration: 30}":                  duration + "30",
		"trial: {configTrialDuration: \"30\"}":              duration + `"30"`,
		"trial: {configTrialDuration: soon}":                duration + `"soon"`,
		"trial: {configTrialDuration: 0s}":                  duration + `"0s"`,
		"trial: {configTrialDuration: -1m}":                 duration + `"-1m"`,
		"trial: {configTrialDuration: 168h0m0.1s}":          duration + `"168h0m0.1s"`,
		"trial: {configTrialDuration: null}":                duration + "null",
		"trial: {configTrialDuration: {a: b}}":              duration + "a mapping",
		"trial: {crashLoopThreshold: -1}":                   threshold + "-1",
		"trial: {crashLoopThreshold: 11}":                   threshold + "11",
		"trial: {crashLoopThreshold: 2.5}":                  threshold + "2.5",
		"trial: {crashLoopThreshold: \"3\"}":                threshold + `"3"`,
		"trial: {crashLoopThreshold: 99999999999999999999}": threshold + "100000000000000000000",
		"trial: {crashLoopThreshold: null}":                 threshold + "null",
		"trial: {allowPodLoss: \"yes\"}":                    podLoss + `"yes"`,
		"trial: {allowPodLoss: 1}":                          podLoss + "1",
		"trial: {allowPodLoss: null}":                       podLoss + "null",
		"trial: {bogus: 1}":                                 "trial.bogus: no such field",
		"trial: {AllowPodLoss: true}":                       "trial.AllowPodLoss: no such field; did you mean trial.allowPodLoss?",
		"trial: {maxPods: 1}":                               "trial.maxPods: maxPods belongs in resources: resources.maxPods",
		"trial: {a: 1, crashLoopThreshold: x}\nzzz: 1":      "trial.a: no such field; " + threshold + `"x"; zzz: no such field`,
	} {
		t.Run(data, func(t *testing.T) {
			_, err := Decode(KeyKubelet, []byte(grouped+data))
			checkRefused(t, err, ProblemTrial, `key "kubelet": `+words)
		})
	}
}

func TestAnUpstreamPayloadHasNoTrial(t *testing.T) {
	p, err := Decode(KeyKubelet, []byte(head+"trial: {allowPodLoss: true}"))
	if err != nil {
		t.Fatal(err)
	}
	if p.Trial != (Trial{}) {
		t.Errorf("trial %+v", p.Trial)
	}
}
