// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestTheDryRunAgreesWithStartedKubelets is the proof of the dry run: wrong and
// right valuesOf of every field of a KubeletConfiguration are judged, and a
// real kubelet is started with each. No value with which it starts is refused,
// unless it could run no pod.
func TestTheDryRunAgreesWithStartedKubelets(t *testing.T) {
	sum := &verdicts{count: map[string]int{}}
	all := kubelets(t)
	seed, left := *seedFlag, *configsFlag
	for i, k := range all {
		count := left / (len(all) - i)
		left -= count
		first := seed
		seed += uint64(count)
		t.Run(k.version, func(t *testing.T) {
			n := newNode(t, k)
			for s := range uint64(count) {
				result, line := n.judge(configOf(rand.New(rand.NewPCG(first+s, 0))))
				sum.add(result, line, first+s)
			}
		})
	}

	t.Log(sum)
	missed, found := sum.count["missed"], sum.count["stage 1"]+sum.count["stage 2"]+sum.count["stage 3"]
	assert.That(t, missed*50 <= missed+found, "%d of %d configurations with which no kubelet starts were accepted, want at most 2%%:\n%s",
		missed, missed+found, strings.Join(sum.lines, "\n"))
}

// TestEachOftenMadeMistakeIsFoundBeforeTheRestart has mistakes of people, with
// the field that each refusal names, and right values.
func TestEachOftenMadeMistakeIsFoundBeforeTheRestart(t *testing.T) {
	for _, k := range kubelets(t) {
		n := newNode(t, k)
		for _, tt := range []struct{ config, want string }{
			{`evictionSoft: {memory.available: 200Mi}`, "stage 2"},
			{`{evictionSoft: {memory.available: 200Mi}, evictionSoftGracePeriod: {memory.available: -1s}}`, "stage 2"},
			{`{evictionSoft: {memory.available: "110%"}, evictionSoftGracePeriod: {memory.available: 1m}}`, "stage 2"},
			{`{evictionSoft: {memory.free: 200Mi}, evictionSoftGracePeriod: {memory.free: 1m}}`, "stage 2"},
			{`evictionMinimumReclaim: {memory.available: banana}`, "stage 2"},
			{`containerLogMaxSize: 10MB`, "stage 2"},
			{`syncFrequency: -1s`, "stage 2"},
			{`configMapAndSecretChangeDetectionStrategy: Foo`, "stage 3"},
			{`systemReserved: {memory: 5000Gi}`, "stage 3"},
			{`kubeReserved: {cpu: 5k}`, "stage 3"},
			{`kubeReserved: {ephemeral-storage: 5000Ti}`, "missed"}, // a trial finds it: the size of the disk is the kubelet's own measurement
			{`systemCgroups: /`, "stage 3"},
			{`maxPods: 70000`, "stage 3"},
			{`tlsCipherSuites: [TLS_AES_128_GCM_SHA256]`, "stage 3"},
			{`{tlsCipherSuites: [TLS_AES_128_GCM_SHA256], tlsMinVersion: VersionTLS13}`, "right and accepted"},
			{`evictionHard: {nodefs.available: 5000Ti}`, "missed"},
			{`{memoryManagerPolicy: Static, reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]}`, "stage 2"},
			{fmt.Sprintf("{cpuManagerPolicy: static, reservedSystemCPUs: 0-%d}", runtime.NumCPU()-1), "useless, stage 3"},
			{`cgroupDriver: systmd`, "useless, stage 3"},
			// They have no effect, or the one that they say.
			{`maxPods: 0`, "right and accepted"}, // means the default
			{`nodeLeaseDurationSeconds: 100000`, "right and accepted"},
			{`evictionPressureTransitionPeriod: -1m`, "right and accepted"},
			{`evictionMaxPodGracePeriod: -5`, "right and accepted"},
			{`evictionSoftGracePeriod: {memory.available: 1m}`, "right and accepted"},
			{`{evictionSoft: {memory.available: 20Mi}, evictionSoftGracePeriod: {memory.available: 1m}, evictionHard: {memory.available: 50Mi}}`, "right and accepted"},
		} {
			var changed map[string]any
			assert.NoError(t, yaml.Unmarshal([]byte(tt.config), &changed))
			result, line := n.judge(changed)
			assert.Equal(t, result, tt.want, k.version, line)
		}
	}
}

// verdicts counts the configurations: those with which a kubelet does not start
// by the stage that rejects them, and the others.
type verdicts struct {
	count map[string]int
	lines []string
}

func (s *verdicts) add(result, line string, seed uint64) {
	s.count[result]++
	if !strings.HasPrefix(result, "stage") && result != "right and accepted" {
		s.lines = append(s.lines, fmt.Sprintf("%s: seed %d: %s", result, seed, line))
	}
}

func (s *verdicts) String() string { return fmt.Sprint(s.count, "\n", strings.Join(s.lines, "\n")) }

// judge compares the verdict on the node's configuration with changes, with a
// start.
func (n *node) judge(changed map[string]any) (result, line string) {
	n.T.Helper()
	n.configure(changed)
	data := assert.Value(os.ReadFile(n.Node.KubeletConfig()))(n.T)
	n.configure(nil)
	host := &agent.HostKubelet{Kubelet: n.parsed(), DryRunner: n.dryRunner, Log: slog.New(slog.DiscardHandler)}
	v := host.Check(n.T.Context(), payload.Resolved{Payload: payload.Payload{Key: payload.KeyKubelet}, Upstream: data})
	n.configure(changed)
	last, starts := n.starts()
	for range 10 {
		if starts || !strings.Contains(last, "device-plugins/kubelet.sock") { // another kubelet has just taken the machine's only one
			break
		}

		last, starts = n.starts()
	}

	line = fmt.Sprintf("%s: %s at stage %d (%.300s); it starts: %t: %.300s", oneLine(changed), v.Outcome, v.Stage, v.Message, starts, last)
	switch {
	case v.Outcome == component.CouldNotTell:
		result = "no verdict"
	case starts && v.Outcome == component.Accepted:
		result = "right and accepted"
	case starts && strings.Contains(v.Message, "strict decoding error: unknown field"):
		result = "unknown field" // the kubelet ignores it
	case starts && v.Stage == 3:
		result = "useless, stage 3"
	case starts:
		result = "right and refused"
		n.T.Error(line)
	case v.Outcome == component.Accepted:
		result = "missed"
	default:
		result = fmt.Sprint("stage ", v.Stage)
	}

	n.T.Log(result, line)

	return result, line
}

// starts starts the kubelet with the file of its configuration, and ends it. It
// has started if it has started its container manager and does not exit soon
// after; otherwise the last words are those of its error.
func (n *node) starts() (words string, ok bool) {
	n.T.Helper()
	for _, name := range []string{"cpu_manager_state", "memory_manager_state", "dra_manager_state", "allocated_pods_state", "actuated_pods_state"} {
		_ = os.Remove(filepath.Join(n.Node.Dir(), "kubelet", name)) // of the configuration before
	}

	ctx, cancel := context.WithTimeout(n.T.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.kubelet.path, n.Node.KubeletArgs()...)
	read, write, err := os.Pipe()
	assert.NoError(n.T, err)
	defer read.Close()
	cmd.Stderr, cmd.Stdout = write, write
	assert.NoError(n.T, cmd.Start())
	_ = write.Close()
	for lines := bufio.NewReader(read); ; {
		line, err := lines.ReadString('\n')
		if strings.Contains(line, "Starting Kubelet Plugin Manager") {
			ok = true
			time.AfterFunc(500*time.Millisecond, cancel) // long enough to exit
		}

		if strings.HasPrefix(line, "E") || strings.Contains(line, "rror") || strings.HasPrefix(line, "panic: ") {
			words = strings.TrimSpace(line)
		}
		if err != nil {
			break
		}
	}

	_ = cmd.Wait()

	// Only a kubelet that was killed here still ran.
	return words, ok && ctx.Err() != nil
}

func oneLine(changed map[string]any) string {
	return strings.ReplaceAll(strings.TrimSpace(asYAML(changed)), "\n", "; ")
}

// notStarted are fields whose values name files, addresses and programs of the
// machine, or change it beyond the test's node.
var notStarted = []string{"address", "authentication", "authorization", "cgroupRoot", "containerRuntimeEndpoint", "healthzBindAddress", "healthzPort",
	"imageServiceEndpoint", "maxOpenFiles", "oomScoreAdj", "podLogsDir", "port", "readOnlyPort", "staticPodPath", "staticPodURL", "tlsCertFile",
	"tlsPrivateKeyFile", "tracing", "volumePluginDir", "failCgroupV1", "makeIPTablesUtilChains", "enableServer", "clientCertificateKeyAlgorithm",
	"containerLogMaxWorkers", // the kubelet starts as many goroutines
	// With these, a kubelet moves or limits all processes of the machine.
	"kubeletCgroups", "systemCgroups", "kubeReservedCgroup", "systemReservedCgroup", "enforceNodeAllocatable"}

// valuesOf has those of one kind of field.
var valuesOf = map[reflect.Type][]any{
	reflect.TypeFor[metav1.Duration](): {"0s", "1s", "10s", "1m30s", "24h0m0s", "100000h0m0s", "-1s", "-10m0s", "banana", "10", 10, nil},
	reflect.TypeFor[bool]():            {true, false, "yes", nil},
	reflect.TypeFor[string]():          {"", "banana", "none", "None", "static", "Static", 7, nil},
	reflect.TypeFor[int32]():           {-100, -1, 0, 1, 2, 5, 50, 99, 100, 101, 1000, 100000, 2147483647, 4294967296, "7", 1.5, nil},
}

var (
	thresholds      = []any{"1", "100m", "50Mi", "200Mi", "1Gi", "500Gi", "5%", "0%", "100%", "110%", "-5%", "-1", "0", "banana", "512MB", "1e3", "10 %", 3, ""}
	evictionSignals = []string{"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "pid.available",
		"containerfs.available", "allocatableMemory.available", "memory.avail", "memory"}
	reservable      = []string{"cpu", "memory", "ephemeral-storage", "pid", "hugepages-2Mi", "disk", "storage"}
	reservations    = []any{"100m", "1", "2", "4", "8", "100Mi", "500Mi", "1Gi", "8Gi", "500Gi", "10%", "-1", "-100Mi", "banana", "512MB", 1, "0"}
	cpuOptions      = []string{"full-pcpus-only", "distribute-cpus-across-numa", "strict-cpu-reservation", "align-by-socket", "nope"}
	topologyOptions = []string{"prefer-closest-numa-nodes", "max-allowable-numa-nodes", "nope"}
	gateNames       = []string{"MemoryQoS", "NodeSwap", "CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions", "TopologyManagerPolicyAlphaOptions",
		"GracefulNodeShutdown", "KubeletCrashLoopBackOffMax", "PodAndContainerStatsFromCRI", "KubeletCgroupDriverFromCRI", "UserNamespacesSupport",
		"DynamicResourceAllocation", "EventedPLEG", "RotateKubeletServerCertificate", "AllAlpha", "AllBeta", "Nope"}
)

// special are values of fields that are more than their kind.
var special = map[string]func(*rand.Rand) any{
	"evictionHard":                 mapOf(evictionSignals, thresholds...),
	"evictionSoft":                 mapOf(evictionSignals, thresholds...),
	"evictionMinimumReclaim":       mapOf(evictionSignals, thresholds...),
	"evictionSoftGracePeriod":      mapOf(evictionSignals, "1m", "1s", "90s", "0s", "-1s", "banana", 5),
	"kubeReserved":                 mapOf(reservable, reservations...),
	"systemReserved":               mapOf(reservable, reservations...),
	"qosReserved":                  mapOf(reservable, thresholds...),
	"featureGates":                 mapOf(gateNames, true, false),
	"cpuManagerPolicyOptions":      mapOf(cpuOptions, "true", "false", "maybe"),
	"topologyManagerPolicyOptions": mapOf(topologyOptions, "true", "false", "8", "16", "maybe"),
	"defaultPodSysctls":            mapOf(sysctls, "1", "banana"),
	"staticPodURLHeader":           mapOf([]string{"A", "b c"}, []string{"x"}, "x"),
	"reservedMemory": func(r *rand.Rand) any {
		return []any{map[string]any{"numaNode": pick(r, []any{0, 0, 0, 1, -1, 9}), "limits": entries(r, []string{"memory", "hugepages-2Mi", "cpu"}, []any{"50Mi", "150Mi", "1Gi", "562Mi", "banana", "-1"})}}
	},
	"shutdownGracePeriodByPodPriority": func(r *rand.Rand) any {
		return []any{map[string]any{"priority": pick(r, []any{0, 100000, -5, "x"}), "shutdownGracePeriodSeconds": pick(r, []any{10, 0, -1})}}
	},
	"registerWithTaints": func(r *rand.Rand) any {
		return []any{map[string]any{"key": pick(r, []any{"a", "a b", ""}), "value": "b", "effect": pick(r, []any{"NoSchedule", "NoExecute", "Nope"})}}
	},
	"cgroupDriver":          enum("cgroupfs", "systemd", "systmd", "Systemd", ""),
	"cpuManagerPolicy":      enum("none", "static", "Static", "nope", ""),
	"memoryManagerPolicy":   enum("None", "Static", "static", "BestEffort", ""),
	"topologyManagerPolicy": enum("none", "best-effort", "restricted", "single-numa-node", "strict"),
	"topologyManagerScope":  enum("container", "pod", "node"),
	"hairpinMode":           enum("promiscuous-bridge", "hairpin-veth", "none", "nope"),
	"contentType":           enum("application/json", "application/vnd.kubernetes.protobuf", "text/banana"),
	"reservedSystemCPUs":    enum("0", "0-1", "0-99", "1", "banana", "1-0", ""),
	"clusterDNS":            listOf("10.96.0.10", "fd00::a", "banana", ""),
	"podCIDR":               enum("10.1.0.0/24", "banana", "10.1.0.0"),
	"tlsMinVersion":         enum("VersionTLS12", "VersionTLS13", "VersionTLS11", "TLS12", "1.2"),
	"tlsCipherSuites":       listOf("TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_NOPE"),
	"tlsCurvePreferences":   listOf(23, 29, 1, -1),
	"containerLogMaxSize":   enum("10Mi", "10MB", "10", "-1", "0", "banana", "1Gi", ""),
	"resolvConf":            enum("/etc/resolv.conf", "", "/nonexistent", "/etc"),
	"configMapAndSecretChangeDetectionStrategy": enum("Watch", "Cache", "Get", "watch", "Foo", ""),
	"imagePullCredentialsVerificationPolicy":    enum("NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify", "Never"),
	"preloadedImagesVerificationAllowlist":      listOf("registry.k8s.io/*", "a b", ""),
	"allowedUnsafeSysctls":                      func(r *rand.Rand) any { return []any{pick(r, sysctls)} },
	"memoryThrottlingFactor":                    enum(0.9, 1, 0, -0.1, 2, "x"),
	"memoryReservationPolicy":                   enum("None", "TieredReservation", "Nope"),
	"memorySwap.swapBehavior":                   enum("NoSwap", "LimitedSwap", "UnlimitedSwap", ""),
	"showHiddenMetricsForVersion":               enum("1.36", "1.20", "banana", ""),
	"logging.format":                            enum("text", "json", "xml"),
	"logging.flushFrequency":                    enum("5s", 5000000000, "-1s", "banana"),
	"logging.verbosity":                         enum(0, 2, 4, -1, "x"),
	"logging.vmodule": func(r *rand.Rand) any {
		return []any{map[string]any{"filePattern": pick(r, []any{"server", "", "a=b"}), "verbosity": 2}}
	},
	"crashLoopBackOff.maxContainerRestartPeriod": enum("1m", "10s", "0s", "301s", "1h", "-1s", "banana"),
	"userNamespaces.idsPerPod":                   enum(65536, 131072, 1, 65537, 0, -1, 4294967296),
}

var sysctls = []string{"net.core.somaxconn", "kernel.msg*", "kernel.pid_max", "banana", "net.ipv4.ip_forward", "Kernel Msg", "fs.mqueue.*", "vm.swappiness", "*"}

// together are fields that the kubelet compares with each other.
var together = [][]string{
	{"evictionSoft", "evictionSoftGracePeriod", "evictionHard"}, {"cpuManagerPolicy", "reservedSystemCPUs", "kubeReserved"},
	{"cpuManagerPolicy", "kubeReserved", "cpuManagerPolicyOptions", "featureGates"}, {"memoryManagerPolicy", "reservedMemory", "kubeReserved"},
	{"topologyManagerPolicy", "topologyManagerScope", "topologyManagerPolicyOptions"}, {"kubeReserved", "systemReserved", "evictionHard"},
	{"imageGCHighThresholdPercent", "imageGCLowThresholdPercent"},
	{"imageMinimumGCAge", "imageMaximumGCAge"}, {"shutdownGracePeriod", "shutdownGracePeriodCriticalPods", "shutdownGracePeriodByPodPriority"},
	{"failSwapOn", "memorySwap.swapBehavior", "featureGates"}, {"serializeImagePulls", "maxParallelImagePulls"},
	{"imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist"}, {"evictionHard", "mergeDefaultEvictionSettings"},
}

func enum(all ...any) func(*rand.Rand) any { return func(r *rand.Rand) any { return pick(r, all) } }

func pick[T any](r *rand.Rand, all []T) T { return all[r.IntN(len(all))] }

func listOf(all ...any) func(*rand.Rand) any {
	return func(r *rand.Rand) any { return []any{pick(r, all)} }
}

func mapOf(names []string, all ...any) func(*rand.Rand) any {
	return func(r *rand.Rand) any { return entries(r, names, all) }
}

func entries(r *rand.Rand, names []string, all []any) map[string]any {
	out := map[string]any{}
	for range 1 + r.IntN(2) {
		out[names[min(r.IntN(len(names)), r.IntN(len(names)))]] = all[min(r.IntN(len(all)), r.IntN(len(all)))] // the first are more often right
	}

	return out
}

// configOf returns one to three fields with random values.
func configOf(r *rand.Rand) map[string]any {
	paths := []string{pick(r, configFields)}
	if r.IntN(3) == 0 {
		paths = slices.Clone(pick(r, together))
		r.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
		paths = paths[:2+r.IntN(len(paths)-1)]
	}

	config := map[string]any{}
	for _, path := range paths {
		value, parts := valueOf(r, path), strings.Split(path, ".")
		inner := config
		for _, name := range parts[:len(parts)-1] {
			if inner[name] == nil {
				inner[name] = map[string]any{}
			}

			inner = inner[name].(map[string]any)
		}

		inner[parts[len(parts)-1]] = value
	}

	return config
}

func valueOf(r *rand.Rand, path string) any {
	if f := special[path]; f != nil {
		return f(r)
	}

	typ := reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]()
	for name := range strings.SplitSeq(path, ".") {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}

		for field := range typ.Fields() {
			if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); tag == name {
				typ = field.Type
				break
			}
		}
	}

	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}

	all := valuesOf[typ]
	switch kind := typ.Kind(); {
	case all != nil:
	case kind == reflect.String:
		all = valuesOf[reflect.TypeFor[string]()]
	case kind == reflect.Int64 || kind == reflect.Int32:
		all = valuesOf[reflect.TypeFor[int32]()]
	default:
		all = []any{[]any{}, []any{"banana"}, map[string]any{}, map[string]any{"banana": "1"}, "banana", nil}
	}

	return pick(r, all)
}

// configFields are those that the test changes.
var configFields = func() (paths []string) {
	for _, f := range payload.Fields {
		top, _, _ := strings.Cut(f.Path, ".")
		path := f.Path
		for special[path] == nil && strings.Contains(path, ".") { // structs in lists are one field here
			path = path[:strings.LastIndex(path, ".")]
		}
		if special[path] == nil {
			path = f.Path
		}
		if slices.Contains(paths, path) {
			continue
		}
		if f.Since == 0 && !slices.Contains(notStarted, top) && !strings.HasPrefix(f.Path, "logging.options") {
			paths = append(paths, path)
		}
	}

	return paths
}()
