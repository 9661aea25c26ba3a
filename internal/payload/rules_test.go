// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

const mib = 1 << 20

var machine = Capacity{CPU: 8000, Memory: 8192 * mib, EphemeralStorage: 100 << 30, PIDs: 32768}

// reserving returns a configuration with a rule for kubeReserved.
func reserving(rule string) string {
	return grouped + "resources: {maxPods: 110, reservations: {kubeReserved: {" + rule + "}}}"
}

func TestTheExamplesGiveWhatTheProvidersPublish(t *testing.T) {
	table := string(assert.Value(os.ReadFile("testdata/sizes/published.txt"))(t))
	seen := map[string]int{}
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}

		data := assert.Value(os.ReadFile(filepath.Join("../../config/examples/sizes", words[0]+".yaml")))(t)
		p := assert.Value(Decode(KeyKubeletDropin, data))(t, words[0])
		c := assert.Value(ParseCapacity(words[1]))(t, line)
		r := assert.Value(p.Resolve(c))(t, line)
		assert.That(t, len(r.Values) == len(words)-2, "%s gives %v", line, r.Values)
		for _, want := range words[2:] {
			path, text, _ := strings.Cut(want, "=")
			text, rounded := strings.CutPrefix(text, "~")
			q := resource.MustParse(text)
			n := q.MilliValue()
			for _, v := range r.Values {
				if v.Path != path {
					continue
				}

				got, most := resource.MustParse(v.Value), int64(0)
				switch memory := strings.HasSuffix(path, "memory"); {
				case memory && rounded:
					most = 840 * mib * 1000 // half a GiB, and the 0.32 GiB that the table explains
				case memory:
					most = mib*1000 - 1
				case rounded:
					most = 5
				}

				diff := n - got.MilliValue()
				assert.That(t, diff <= most && (diff >= 0 || rounded && -diff <= most), "%s: %s is %s (%s), want %s", words[1], path, v.Value, v.From, text)
				seen[words[0]]++
			}
		}
	}

	for provider, n := range map[string]int{"gke": 24, "eks": 14, "aks": 14, "openshift": 18} {
		assert.That(t, seen[provider] == n, "%d values of %s were compared, want %d", seen[provider], provider, n)
	}
}

func TestARuleIsResolvedToAConstant(t *testing.T) {
	for config, want := range map[string]string{
		reserving("memory: {percent: 5, min: 500Mi, max: 4Gi}"):                                                           "kubeReserved.memory=500Mi from 5% of memory, at least 500Mi, at most 4Gi",
		reserving("memory: {plus: 255Mi, perPod: 11Mi}"):                                                                  "kubeReserved.memory=1465Mi from 11Mi per pod of maxPods, plus 255Mi",
		reserving("memory: {plus: 50Mi, perPod: 20Mi, maxPercent: 25}"):                                                   "kubeReserved.memory=2Gi from 20Mi per pod of maxPods, plus 50Mi, at most 25% of memory",
		reserving("memory: {percent: 0.013}"):                                                                             "kubeReserved.memory=1Mi from 0.013% of memory",
		reserving("cpu: {percent: 0.0125}"):                                                                               "kubeReserved.cpu=1m from 0.0125% of cpu",
		reserving("cpu: {tiers: [{upTo: 1, percent: 6}, {upTo: 2500m, percent: 1}]}"):                                     "kubeReserved.cpu=75m from 6% of the first 1 CPU, 1% of the next 1500m CPU",
		reserving("ephemeral-storage: {tiers: [{upTo: 10Gi, percent: 0}, {percent: 1}]}"):                                 "kubeReserved.ephemeral-storage=921Mi from 0% of the first 10Gi, 1% of the rest",
		reserving("memory: {percent: 1, max: 64Pi, plus: 1048576.000k}"):                                                  "kubeReserved.memory=1081Mi from 1% of memory, plus 1000Mi, at most 64Pi",
		grouped + "resources: {maxPods: {perCPU: 1048576, max: 9}}":                                                       "maxPods=9 from 1048576 per CPU, at most 9",
		grouped + "resources: {eviction: {evictionHard: {pid.available: {percent: 1}, nodefs.available: {percent: 10}}}}": "evictionHard[nodefs.available]=10Gi from 10% of ephemeral-storage; evictionHard[pid.available]=327 from 1% of pid",
		reserving("pid: {percent: 10, plus: 100}"):                                                                        "kubeReserved.pid=3376 from 10% of pid, plus 100",
		grouped + "resources: {maxPods: {perCPU: 10, perGiB: 4, plus: 5, max: 250}}":                                      "maxPods=37 from the smaller of 10 per CPU and 4 per GiB of memory, plus 5, at most 250",
		grouped + "resources: {maxPods: {perGiB: 0.5}}":                                                                   "maxPods=4 from 0.5 per GiB of memory",
		grouped + "resources: {eviction: {evictionSoft: {memory.available: {percent: 5}, nodefs.available: 10%}}}":        "evictionSoft[memory.available]=409Mi from 5% of memory",
		grouped + "resources: {maxPods: {perCPU: 10}, reservations: {systemReserved: {memory: {perPod: 1536Ki}}}}":        "maxPods=80 from 10 per CPU; systemReserved.memory=120Mi from 1536Ki per pod of maxPods",
	} {
		p := assert.Value(Decode(KeyKubelet, []byte(config)))(t, config)
		r := assert.Value(p.Resolve(machine))(t, config)
		var got []string
		for _, v := range r.Values {
			got = append(got, v.Path+"="+v.Value+" from "+v.From)
		}

		assert.That(t, strings.Join(got, "; ") == want, "%s gives %q, want %q", config, got, want)
		constants := assert.Value(Decode(KeyKubelet, r.Upstream))(t, string(r.Upstream))
		assert.That(t, !constants.HasRules() && len(r.Digest) == 64, "%s, digest %q", r.Upstream, r.Digest)
		assert.NoDiff(t, cmp.Diff(constants.Fields, r.Fields))
		again := assert.Value(p.ResolveRecorded(r.Values))(t, config)
		assert.That(t, again.Digest == r.Digest && string(again.Upstream) == string(r.Upstream), "recorded %s, resolved %s", again.Upstream, r.Upstream)
	}
}

func TestABadRuleIsRefusedWithItsPath(t *testing.T) {
	const at = "resources.reservations.kubeReserved."
	for rule, want := range map[string]string{
		"memory: {}":         at + "memory: computes nothing",
		"memory: {min: 1Gi}": at + "memory: computes nothing",
		"memory: {percent: 5, min: 2Gi, max: 1Gi}":       at + "memory.min: 2Gi is above max, which is 1Gi",
		"memory: {percent: 101}":                         at + "memory.percent: must be a number above 0 and up to 100, of at most 16 characters and without an exponent, not 101",
		"memory: {percent: 1e400}":                       at + "memory.percent: must be a number above 0",
		`memory: {percent: "25%"}`:                       at + `memory.percent: must be a number above 0 and up to 100, of at most 16 characters and without an exponent, not "25%"`,
		"memory: {plus: 1e999999999}":                    at + "memory.plus: must be an amount of memory",
		`memory: {"min": 1E+000999999999, "percent": 1}`: at + "memory.min: must be an amount of memory",
		"memory: {plus: -1Gi}":                           at + "memory.plus: must be an amount of memory",
		"memory: {plus: 4}":                              at + "memory.plus: must be an amount of memory from 1Mi to 64Pi, such as 100Mi, not 4",
		"cpu: {plus: 1Ki}":                               at + "cpu.plus: must be an amount of cpu from 1m",
		"pid: {plus: 1.5}":                               at + "pid.plus: must be an amount of pid",
		"memory: {percent: 5, maxPercent: 101}":          at + "memory.maxPercent: must be a number above 0 and up to 100, of at most 16 characters and without an exponent, not 101",
		"memory: {percent: 0.00000001}":                  at + "memory.percent: must be a number above 0", // JSON has it as 1e-08
		"memory: {perPod: 512}":                          at + "memory.perPod: must be an amount of memory from 1Ki",
		"cpu: {plus: 2000000}":                           at + "cpu.plus: must be an amount of cpu from 1m to 1048576",
		"memory: {perCPU: 1}":                            at + "memory.perCPU: no such part of a rule; a rule for kubeReserved.memory has max, maxPercent, min, percent, perPod, plus, tiers",
		"memory: {percent: 5, tiers: [{percent: 5}]}":    at + "memory.tiers: percent and tiers exclude each other",
		"memory: {tiers: [" + strings.Repeat("{percent: 1},", 10_000) + "]}": at + "memory.tiers: must be a list of 1 to 16 tiers",
		"memory: {tiers: [5]}":                                                      at + "memory.tiers[0]: must be a mapping",
		"memory: {tiers: [{upTo: 4Gi}]}":                                            at + "memory.tiers[0].percent: is missing",
		"memory: {tiers: [{percent: 5}, {percent: 5}]}":                             at + "memory.tiers[0].upTo: is missing",
		"memory: {tiers: [{upTo: 4Gi, percent: 5}, {upTo: 4Gi, percent: 5}]}":       at + "memory.tiers[1].upTo: must be above",
		"memory: {tiers: [{upTo: 4Gi, percent: 5}, {upTo: 8Gi, percent: 5, x: 1}]}": at + "memory.tiers[1].x: no such part of a tier",
		"hugepages-1Gi: {percent: 5}":                                               at + "hugepages-1Gi: must be a constant: only cpu, ephemeral-storage, memory, pid may be rules",
	} {
		_, err := Decode(KeyKubelet, []byte(reserving(rule)))
		assert.That(t, ProblemOf(err) == ProblemRule && strings.HasPrefix(err.Error(), want), "%.100s: %v, want %s", rule, err, want)
	}

	for config, want := range map[string]string{
		"resources: {maxPods: {perCPU: 0}}":                                                      "resources.maxPods.perCPU: must be a number above 0 and up to 1048576, of at most 16 characters and without an exponent, not 0",
		"resources: {maxPods: 0, reservations: {kubeReserved: {memory: {perPod: 11Mi}}}}":        "resources.reservations.kubeReserved.memory.perPod: needs resources.maxPods above 0",
		"resources: {maxPods: [{perCPU: 1}], reservations: {kubeReserved: {cpu: {perPod: 1m}}}}": "resources.reservations.kubeReserved.cpu.perPod: needs resources.maxPods above 0",
		"resources: {maxPods: {percent: 5}}":                                                     "resources.maxPods.percent: no such part of a rule; a rule for maxPods has max, min, perCPU, perGiB, plus",
		"resources: {reservations: {kubeReserved: {memory: {perPod: 11Mi}}}}":                    "resources.reservations.kubeReserved.memory.perPod: needs resources.maxPods above 0 in the same configuration",
		"resources: {eviction: {evictionHard: {imagefs.available: {percent: 5}}}}":               "resources.eviction.evictionHard[imagefs.available]: must be a constant: only memory.available, nodefs.available, pid.available may be rules",
		"resources: {eviction: {evictionHard: {memory.available: {tiers: [{percent: 500}]}}}}":   "resources.eviction.evictionHard[memory.available].tiers[0].percent: must be",
	} {
		_, err := Decode(KeyKubelet, []byte(grouped+config))
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), want), "%s: %v, want %s", config, err, want)
	}

	// The upstream form has no rules: the kubelet refuses it.
	assert.NoError(t, assert.Err(Decode(KeyKubelet, []byte(head+"kubeReserved: {memory: {percent: 5}}"))))
}

func TestAResultThatTheMachineCannotHaveIsRefused(t *testing.T) {
	const at, pods = "resources.reservations.kubeReserved.", "resources.maxPods: "
	for _, test := range []struct{ config, machine, want string }{
		{reserving("memory: {plus: 9Gi}"), "memory=8Gi", at + "memory: is above the machine's memory, which is 8Gi: use max or maxPercent"},
		{reserving("memory: {percent: 0.01}"), "memory=8Gi", at + "memory: is 0 on this machine: use min or plus"},
		{reserving("cpu: {tiers: [{upTo: 1, percent: 0}, {percent: 5}]}"), "cpu=1", at + "cpu: is 0 on this machine: use min or plus"},
		{reserving("cpu: {percent: 5}"), "memory=8Gi", at + "cpu: depends on the machine, whose capacity of cpu is not known"},
		{reserving("ephemeral-storage: {plus: 1Gi}"), "cpu=8,memory=8Gi", at + "ephemeral-storage: depends on the machine, whose capacity of ephemeral-storage is not known"},
		{grouped + "resources: {maxPods: {perCPU: 10}}", "pid=1", pods + "depends on the machine, whose capacity of cpu is not known"},
		{grouped + "resources: {maxPods: {perGiB: 10}}", "pid=1", pods + "depends on the machine, whose capacity of memory is not known"},
		{grouped + "resources: {maxPods: {plus: 2147483647, perGiB: 10}}", "pid=1", pods + "depends on the machine, whose capacity of memory is not known"},
		{grouped + "resources: {maxPods: {plus: 2147483647, perCPU: 1}}", "cpu=8", pods + "is above the machine's pods, which is 2147483647"},
	} {
		p := assert.Value(Decode(KeyKubelet, []byte(test.config)))(t, test.config)
		_, err := p.Resolve(assert.Value(ParseCapacity(test.machine))(t))
		assert.That(t, NeedsCapacity(err) == strings.Contains(test.want, "not known"), "%s needs a capacity: %v", test.config, err)
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), test.want),
			"%s on %s: %v, want %s", test.config, test.machine, err, test.want)
	}
}

// Nodes keep values and digests over upgrades of the agent: another digest
// would be another configuration, tried on all nodes.
func TestTheDigestOfValuesStays(t *testing.T) {
	p := assert.Value(Decode(KeyKubelet, []byte(grouped+"resources: {maxPods: {perCPU: 5}, eviction: {evictionHard: {memory.available: {percent: 1}}}}")))(t)
	r := assert.Value(p.Resolve(machine))(t)
	want := sha256.Sum256([]byte("maxPods=40\nevictionHard[memory.available]=81Mi\n"))
	assert.That(t, r.Digest == hex.EncodeToString(want[:]), "the digest is %s, of %v", r.Digest, r.Values)
}

func TestLongWordsOfARuleAreTruncated(t *testing.T) {
	var tiers []string
	for i := range 16 {
		tiers = append(tiers, fmt.Sprintf("{upTo: %d000Mi, percent: 0.%014d}", 10+i, 11111111111111+i))
	}

	p := assert.Value(Decode(KeyKubelet, []byte(reserving("memory: {tiers: ["+strings.Join(tiers, ",")+"], min: 1Mi}"))))(t)
	from := assert.Value(p.Resolve(machine))(t).Values[0].From
	assert.That(t, len(from) <= 256 && strings.HasPrefix(from, "0.11111111111111% of the first 10000Mi"), "it has %d bytes: %s", len(from), from)
}

func TestRecordedValuesOfAnotherPayloadAreRefused(t *testing.T) {
	p := assert.Value(Decode(KeyKubelet, []byte(grouped+"resources: {maxPods: {perCPU: 10}}")))(t)
	for _, values := range [][]v1alpha1.ResolvedValue{nil, {{Path: "maxPods", Value: "x"}}, {{Path: "maxPods", Value: "0"}}, {{Path: "maxPods", Value: "4294967296"}},
		{{Path: "maxPods", Value: "40"}, {Path: "maxPods", Value: "40"}}, {{Path: "kubeReserved.cpu", Value: "1"}}} {
		_, err := p.ResolveRecorded(values)
		assert.That(t, err != nil, "%v was accepted", values)
	}
}

func TestTheCapacityIsParsed(t *testing.T) {
	got := assert.Value(ParseCapacity("cpu=8,memory=8Gi,ephemeral-storage=100Gi,pid=32768"))(t)
	assert.That(t, got == machine, "got %+v", got)
	for _, text := range []string{"", "cpu", "cpu=", "cpu=0", "cpu=-1", "cpu=1e30", "memory=1e400", "memory=1e999999999", "cpu=1e-999999999", "gpu=1", "cpu=1,,", "cpu=1,cpu=2", "cpu=1e14", "memory=1e17"} {
		_, err := ParseCapacity(text)
		assert.That(t, err != nil, "%q was accepted", text)
	}
}

func TestAPayloadWithRulesIsShownInWords(t *testing.T) {
	p := assert.Value(Decode(KeyKubelet, []byte(reserving("memory: {percent: 5}"))))(t)
	assert.NoDiff(t, cmp.Diff("map[memory:5% of memory] [kubeReserved.memory]", fmt.Sprint(p.Fields["kubeReserved"], p.Rules())))
	c := assert.Value(p.Resolve(machine))(t)
	assert.NoDiff(t, cmp.Diff("map[memory:409Mi] map[memory:5% of memory]", fmt.Sprint(c.Fields["kubeReserved"], p.Fields["kubeReserved"])))
}

// A rule is refused with its path, or resolved to a constant that is above 0
// and at most the capacity.
func FuzzRules(f *testing.F) {
	for _, rule := range []string{
		"memory: {percent: 5, min: 500Mi, max: 4Gi}", "memory: {plus: 255Mi, perPod: 11Mi, maxPercent: 25}", "pid: {percent: 10, plus: 100}",
		"cpu: {tiers: [{upTo: 1, percent: 6}, {upTo: 2500m, percent: 1}, {percent: 0.25}]}", "memory: {percent: 1e400}", "cpu: {plus: 1e18}", "memory: {plus: 1e999999999}", "pid: {min: 1e-999999999, plus: 1}",
		"ephemeral-storage: {tiers: [{upTo: 10Gi, percent: 0}, {percent: 1}]}", "memory: {perPod: 64Pi, max: 64Pi}", "cpu: {min: 1n, percent: 1}",
	} {
		f.Add(rule, int64(8000), int64(8<<30), int64(110))
	}

	f.Fuzz(func(t *testing.T, rule string, cpu, memory, pods int64) {
		p, err := Decode(KeyKubelet, fmt.Appendf(nil, "%sresources: {maxPods: %d, reservations: {kubeReserved: {%s}}}", grouped, pods, rule))
		if err != nil {
			assert.That(t, len(err.Error()) <= 2000 && !strings.ContainsAny(err.Error(), "\n\r"), "%q is refused with %q", rule, err)
			return
		}

		r, err := p.Resolve(Capacity{CPU: cpu, Memory: memory, EphemeralStorage: memory, PIDs: cpu})
		if err != nil {
			assert.That(t, strings.HasPrefix(err.Error(), "resources.reservations.kubeReserved."), "%q: %v", rule, err)
			return
		}

		for _, v := range r.Values {
			q, err := resource.ParseQuantity(v.Value)
			whole := memory
			if strings.HasSuffix(v.Path, ".cpu") {
				q.SetMilli(q.MilliValue() * 1000)
				whole = cpu
			} else if strings.HasSuffix(v.Path, ".pid") {
				whole = cpu
			}

			assert.That(t, err == nil && q.Sign() > 0 && q.CmpInt64(whole) <= 0 && len(v.Value) <= 32 && len(v.From) <= 256 && len(v.Path) <= 128,
				"%q gives %+v on a machine with %d", rule, v, whole)
		}

		again, err := Decode(KeyKubelet, r.Upstream)
		assert.That(t, err == nil && !again.HasRules() && len(r.Values) <= v1alpha1.MaxResolvedValues, "%q became %s: %v", rule, r.Upstream, err)
		recorded := assert.Value(p.ResolveRecorded(r.Values))(t, rule)
		assert.Equal(t, recorded.Digest, r.Digest, rule)
	})
}
