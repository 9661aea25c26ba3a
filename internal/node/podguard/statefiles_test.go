// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

const (
	devicesFile = `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"example.com/gpu","DeviceIDs":{"-1":["x"],"0":["x","y"]},"AllocResp":"AA=="}],"RegisteredDevices":{"example.com/gpu":["x","y"],"b.com/b":null}},"Checksum":1,"New":{}}`
	cpuFile     = `{"policyName":"static","defaultCpuSet":"0-1,4","entries":{"u":{"c":"2-3"}},"checksum":5}`
	memoryFile  = `{"policyName":"Static","machineState":{"0":{"numberOfAssignments":1,"memoryMap":{"memory":{"total":9,"systemReserved":2,"allocatable":7,"reserved":3,"free":4},"hugepages-2Mi":null},"cells":[0]},"1":null},"entries":{"u":{"c":[{"numaAffinity":[0],"type":"memory","size":3}]}},"checksum":5}`
)

var allocatedFile = `{"data":` + quoted(`{"entries":{"u":{"ContainerResources":{"c":{"limits":{},"requests":{"cpu":"500m"}},"d":{}},"PodLevelResources":{"requests":{"cpu":"2"}},"EmptyDirVolumeLimits":{"v":"1Gi"}},"w":{"ContainerResources":null,"PodLevelResources":null}}}`) + `,"checksum":3}`

func TestTheKubeletsFilesAreDecoded(t *testing.T) {
	want := map[types.UID]Allocation{
		"u": {
			Containers: map[string]corev1.ResourceRequirements{"c": {Requests: quantities("cpu", "500m")}, "d": {}},
			Pod:        &corev1.ResourceRequirements{Requests: quantities("cpu", "2")},
		},
		"w": {Containers: map[string]corev1.ResourceRequirements{}},
	}
	assert.NoDiff(t, cmp.Diff(want, assert.Value(DecodeAllocated([]byte(allocatedFile)))(t)), "allocated_pods_state")
	devices := Devices{
		Resources: map[corev1.ResourceName]bool{"b.com/b": true, "example.com/gpu": true},
		Allocated: map[DeviceUser]int{{"u", "c", "example.com/gpu"}: 2},
	}
	assert.NoDiff(t, cmp.Diff(devices, assert.Value(DecodeDevices([]byte(devicesFile)))(t)), "kubelet_internal_checkpoint")
	wantCPU := &CPUState{"static", cpuset.New(0, 1, 4), map[types.UID]map[string]cpuset.CPUSet{"u": {"c": cpuset.New(2, 3)}}}
	wantMemory := &MemoryState{"Static", map[int]NUMANode{0: {map[corev1.ResourceName]MemoryTable{"memory": {2, 4}, "hugepages-2Mi": {}}}, 1: {}}, map[types.UID]map[string][]struct{}{"u": {"c": {{}}}}}
	// 1.37 writes the content also into data, and reads it from there.
	for version, files := range map[string][2]string{
		"1.33": {cpuFile, memoryFile},
		"1.37": {`{"policyName":"none","entries":{"old":{"c":"9"}},"data":` + quoted(cpuFile) + `,"dataChecksum":1}`, `{"policyName":"None","entries":{"old":{"c":[]}},"data":` + quoted(memoryFile) + `}`},
	} {
		cpu := assert.Value(DecodeCPUState([]byte(files[0])))(t, version)
		assert.NoDiff(t, cmp.Diff(wantCPU, cpu, cmp.Comparer(cpuset.CPUSet.Equals)), version, "cpu_manager_state")
		memory := assert.Value(DecodeMemoryState([]byte(files[1])))(t, version)
		assert.NoDiff(t, cmp.Diff(wantMemory, memory), version, "memory_manager_state")
	}
}

// The last one of a repeated key counts, as it does for the kubelet.
func TestRepeatedKeysAreDecodedLikeTheKubelet(t *testing.T) {
	const text = `{"policyName":"none","policyName":"static","entries":{"u":{"c":"1"},"u":{"d":"2"}},"defaultCpuSet":"x","DEFAULTCPUSET":"0"}`
	state := assert.Value(DecodeCPUState([]byte(text)))(t)
	want := &CPUState{"static", cpuset.New(0), map[types.UID]map[string]cpuset.CPUSet{"u": {"d": cpuset.New(2)}}}
	assert.NoDiff(t, cmp.Diff(want, state, cmp.Comparer(cpuset.CPUSet.Equals)))
}

func TestAListOfAllCPUsIsParsed(t *testing.T) {
	assert.Equal(t, assert.Value(ParseCPUSet(" 0-8190,8191\n"))(t).Size(), 8192)
	assert.ErrorHas(t, assert.Err(ParseCPUSet("0-8191,0")), "more than 8192")
	assert.Equal(t, assert.Value(ParseCPUSet(""))(t).Size(), 0, "an empty list")
}

// decoders are the decoders by name, with their errors only.
var decoders = map[string]func([]byte) error{
	"allocated": func(b []byte) error { _, err := DecodeAllocated(b); return err },
	"devices":   func(b []byte) error { _, err := DecodeDevices(b); return err },
	"cpu":       func(b []byte) error { _, err := DecodeCPUState(b); return err },
	"memory":    func(b []byte) error { _, err := DecodeMemoryState(b); return err },
}

func TestBrokenFilesAreErrorsInLittleTime(t *testing.T) {
	inData := func(inner string) string { return `{"data":` + quoted(inner) + `}` }
	entry := func(quantity string) string {
		return inData(`{"entries":{"u":{"ContainerResources":{"c":{"requests":{"cpu":"` + quantity + `"}}}}}}`)
	}
	for _, tt := range []struct{ name, decoder, text, want string }{
		{"empty", "allocated", ``, "unexpected end"},
		{"no data", "allocated", `{}`, "data: unexpected end"},
		{"broken quantity", "allocated", entry("lots"), "quantities must match"},
		{"long quantity", "allocated", entry(strings.Repeat("9", 1000)), "quantity of 1000 bytes"},
		{"deep", "devices", `{"Data":{"New":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}}`, "exceeded max depth"},
		{"deep in data", "memory", inData(strings.Repeat("[", 20_000)), "data: invalid character '[' exceeded max depth"},
		{"large", "cpu", strings.Repeat(" ", maxStateFile+1), "more than 33554432"},
		{"many values", "devices", `{"Data":{"PodDeviceEntries":[{}` + strings.Repeat(",{}", 1<<19) + `]}}`, "1048580 values, more than 1048576"},
		{"not a number", "devices", `{"Data":NaN}`, "invalid character"},
		{"more bytes than there can be", "memory", `{"machineState":{"0":{"memoryMap":{"memory":{"free":18446744073709551616}}}}}`, "cannot unmarshal"},
		{"NUMA node that is no number", "memory", `{"machineState":{"99999999999999999999":{}}}`, "cannot unmarshal"},
		{"CPU number", "cpu", `{"defaultCpuSet":"8192"}`, `"8192" is not a CPU or range below 8192`},
		{"four billion CPUs", "cpu", `{"defaultCpuSet":"0-4000000000"}`, `"0-4000000000" is not a CPU`},
		{"empty part", "cpu", `{"defaultCpuSet":"0,,1"}`, `"" is not a CPU`},
		{"negative CPU", "cpu", `{"defaultCpuSet":"-1"}`, `"-1" is not a CPU`},
		{"reversed range", "cpu", `{"defaultCpuSet":"3-1"}`, "range"},
		{"repeated ranges", "cpu", `{"defaultCpuSet":"` + strings.Repeat("0-8191,", 60000) + `0"}`, "more than 8192"},
		{"negative bytes", "memory", `{"machineState":{"0":{"memoryMap":{"memory":{"free":-1}}}}}`, "cannot unmarshal"},
		{"many CPUs", "cpu", `{"entries":{"u":{` + manyEntries(200) + `}}}`, "more than 1048576 CPUs"},
	} {
		var err error
		inLittleTime(func() { err = decoders[tt.decoder]([]byte(tt.text)) })
		assert.ErrorHas(t, err, tt.want, tt.name)
	}
}

// inLittleTime ends the tests if the function has not returned after 20 seconds,
// which is far above what it takes.
func inLittleTime(run func()) {
	timer := time.AfterFunc(20*time.Second, func() { panic("does not return") })
	defer timer.Stop()
	run()
}

func manyEntries(n int) string {
	var entries []string
	for i := range n {
		entries = append(entries, fmt.Sprintf(`"c%d":"0-8191"`, i))
	}

	return strings.Join(entries, ",")
}

// A quantity with a large exponent must not make the parser compute all its
// digits.
func TestQuantitiesWithLargeExponentsAreFast(_ *testing.T) {
	for _, text := range []string{"1e9", "1e999999999", "1e-999999999", "9e9223372036854775807", "1.5e2147483647", "-1e2147483647", "1e+0000999999999", "1e99", "1e-99"} {
		inLittleTime(func() {
			if q, err := payload.ParseQuantity(text); err == nil {
				amount(corev1.ResourceCPU, q)
				amount(corev1.ResourceMemory, q)
				largestOf(corev1.ResourceList{"cpu": q}, quantities("cpu", "1"))
			}
		})
	}
}

// useFile decodes the file with every decoder, and predicts with what they
// return.
func useFile(after component.Effective, data []byte) {
	in := Input{Minor: 35, After: after, Node: aNode(), Pods: []*corev1.Pod{aPod("a", nil, guaranteed("1"), func(p *corev1.Pod) { p.UID = "u" })}}
	in.Allocated, _ = DecodeAllocated(data)
	in.Devices, _ = DecodeDevices(data)
	in.CPUState, _ = DecodeCPUState(data)
	in.MemoryState, _ = DecodeMemoryState(data)
	Predict(in)
	NeedsDrain(in)
}

var stateFiles = []string{allocatedFile, devicesFile, cpuFile, memoryFile, `{"data":` + quoted(cpuFile) + `}`, `{"data":` + quoted(memoryFile) + `}`}

const staticPolicies = `{"cpuManagerPolicy":"static","memoryManagerPolicy":"Static","cpuManagerPolicyOptions":{"full-pcpus-only":"true"}}`

func FuzzCPUSet(f *testing.F) {
	for _, text := range []string{"", "0-3,7", " 1\n", "0-4000000000", "3-1", "8191-0,0-8191", "-", ",", "+1", "0-8191,0-8191"} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		set, err := ParseCPUSet(text)
		again, errAgain := ParseCPUSet(set.String())
		assert.That(t, err != nil || errAgain == nil && again.Equals(set) && set.Size() <= maxCPUs,
			"%q is %v, and again %v, %v", text, set, again, errAgain)
	})
}

func FuzzQuantity(f *testing.F) {
	for _, text := range []string{"1", "1e30", "-9E", "1e999999999", "0.5", "1Ki", "100%", "3.3%", "NaN%"} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		if q, err := payload.ParseQuantity(text); err == nil {
			for _, name := range []corev1.ResourceName{"cpu", "memory"} {
				a := amount(name, q)
				assert.That(t, a >= 0 && a <= maxAmount, "%q of %s is %d", text, name, a)
			}
		}

		least := threshold(text, 1<<40)
		assert.That(t, least >= 0, "the threshold %q is %d", text, least)
	})
}

func FuzzDecoders(f *testing.F) {
	after := config(f, staticPolicies)
	for _, text := range stateFiles {
		f.Add([]byte(text))
	}

	f.Fuzz(func(t *testing.T, data []byte) { useFile(after, data) })
}

func TestDamagedFilesDoNotPanic(t *testing.T) {
	after := config(t, staticPolicies)
	tokens := []string{"", "null", "{}", "[]", "-1", "1e99", `"0-9"`, `"x"`, "18446744073709551615", `"9E"`, ",", "true"}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom(stateFiles).Draw(t, "file")
		for range rapid.IntRange(1, 3).Draw(t, "damages") {
			from := rapid.IntRange(0, len(text)).Draw(t, "from")
			to := min(len(text), from+rapid.IntRange(0, 12).Draw(t, "length"))
			text = text[:from] + rapid.SampledFrom(tokens).Draw(t, "token") + text[to:]
		}

		useFile(after, []byte(text))
	})
}
