// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Errors that end a run. Stage 2 ends at a sysctl, which the candidate cannot
// know.
const (
	acceptedStage1 = "failed to run Kubelet: cannot exit on lock file contention: no lock file specified"
	acceptedStage2 = `failed to run Kubelet: failed to create kubelet: the sysctls %q are not known to be namespaced`
)

// runtimeErrors begin the errors of a kubelet whose container runtime fails:
// what the kubelet quotes from a payload always follows words of its own.
// Connecting has its own error; the first call after that, for the runtime's
// cgroup driver, returns a plain gRPC error. Stage 2 uses gRPC for nothing else
// but the runtime's version.
var runtimeErrors = []string{
	"failed to run Kubelet: validate service connection: validate CRI v1 runtime API for endpoint ",
	"failed to run Kubelet: validate service connection: validate CRI v1 image API for endpoint ",
	"failed to run Kubelet: rpc error: code = ",
	"failed to run Kubelet: failed to create kubelet: get remote runtime typed version failed: ",
}

// Messages that a kubelet logs only if it continues after the end of a stage.
// Each is logged before it serves requests, writes to the node or touches a
// pod.
var (
	overrunStage2 = []string{"No API server defined - no node status update will be sent", "Started kubelet", "Starting to listen",
		"Starting to listen read-only"}
	overrunStage1 = append([]string{"Standalone mode, no API client", "Connecting to runtime service", "Using root directory",
		"Adding static pod path"}, overrunStage2...)
)

// Flags of each stage, and the node's flags that are removed because they name
// paths outside the scratch directory, give access to the API, or override the
// stage's flags.
var (
	droppedAlways = []string{
		"config", "config-dir", "lock-file", "exit-on-lock-contention", "cert-dir", "root-dir", "kubeconfig",
		"bootstrap-kubeconfig", "v",
	}
	flagsStage1 = []string{"--exit-on-lock-contention"}
	// Stage 2 acts on the configuration. Its dump is not used, so flags can
	// keep it away from files, static pods, the network of pods, programs of
	// volume plugins, and a lower OOM score.
	flagsStage2 = []string{
		"--authentication-token-webhook=false", "--authorization-mode=AlwaysAllow", "--rotate-certificates=false", "--client-ca-file=",
		"--tls-cert-file=", "--tls-private-key-file=", "--image-service-endpoint=", "--oom-score-adj=1000", "--pod-manifest-path=",
		"--manifest-url=", "--pod-cidr=",
	}
	droppedStage2 = []string{"experimental-mounter-path"}
)

const (
	runtimeFlag = "container-runtime-endpoint"
	sysctlsFlag = "allowed-unsafe-sysctls"
)

const (
	dryRunDeadline = 15 * time.Second
	// dryRunMemory limits the data segment of a dry run, in bytes. A kubelet
	// needs about 100 MiB for a small configuration, and less than half of the
	// limit for one of 1 MiB.
	dryRunMemory = 1 << 30
	// maxParallel limits the parallel dry runs of a DryRunner, to save the
	// node's CPU.
	maxParallel = 2
	maxMessage  = 2000
)

// DryRunner validates configurations with a node's kubelet binary in dry runs.
// It is safe for concurrent use.
type DryRunner struct {
	// Deadline is the time after which a run is killed, 15 s by default. Set it
	// before the first use.
	Deadline time.Duration
	// Protected are the fields that must equal the local configuration before
	// stage 2 runs a candidate. Set it before the first use.
	Protected payload.Protection

	k           *Kubelet
	apiVersions []string // those that probe tries, one after the other
	scratch     string
	log         *slog.Logger
	slots       chan struct{}

	mu           sync.Mutex
	probed       capabilities // results for a binary that ends after stage 1
	stage2Safe   Identity     // a binary that ended at the end of stage 2
	stage2Unsafe Identity     // a binary that continued after stage 2
}

// NewDryRunner returns a DryRunner for a node's kubelet. It creates scratchDir
// for temporary files.
func NewDryRunner(k *Kubelet, scratchDir string, log *slog.Logger) *DryRunner {
	// The kubelet would resolve a relative path too, but its errors contain it.
	if absolute, err := filepath.Abs(scratchDir); err == nil {
		scratchDir = absolute
	}

	return &DryRunner{
		Deadline: dryRunDeadline, k: k, apiVersions: []string{payload.UpstreamAPIVersion}, scratch: scratchDir, log: log,
		slots: make(chan struct{}, maxParallel),
	}
}

// capabilities describe a binary whose dry run ends after stage 1.
type capabilities struct {
	id         Identity
	apiVersion string     // the first accepted one
	shape      *dumpShape // form of its dump; nil: it prints none
}

// dryRun describes one dry run.
type dryRun struct {
	stage        int
	config       configuration
	withFlags    bool       // with the node's flags
	withoutFlags bool       // without the node's flags, to compare with the run that has them
	shape        *dumpShape // how to find the dump; nil: do not search for it
	runtime      string     // for stage 2: the endpoint of the runtime that answers, instead of the configuration's
	sysctls      []any      // for stage 2: allowedUnsafeSysctls
}

// result is the result of a dry run.
type result struct {
	outcome       Outcome // Rejected if the configuration was refused, before it is known why
	message       string
	strictError   string
	overran       bool
	runtimeFailed bool // rejected because the container runtime could not be reached
	decodeFailed  bool // rejected because the --config file could not be decoded
	ownFailure    bool // the process exceeded its deadline, crashed, or continued after the end of the stage
	effective     Effective
	dumps         []string // candidates for the dump if its form is not known yet
	fileFlags     []string // see outputReader
}

// run does a dry run and removes its files.
func (h *DryRunner) run(ctx context.Context, spec dryRun) result {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-ctx.Done():
		return result{message: ctx.Err().Error()}
	}

	dir, err := h.makeScratch()
	if err != nil {
		return result{message: fmt.Sprintf("no scratch directory for the dry run: %v", err)}
	}

	defer removeScratch(dir, h.log)
	id, err := h.k.Identity()
	if err != nil {
		return result{message: err.Error()}
	}

	if spec.stage == 2 {
		standIn, stop, err := startStandIn(spec.runtime, dir)
		if err != nil {
			return result{message: fmt.Sprintf("no stand-in of the container runtime for the dry run: %v", err)}
		}

		defer stop()
		spec.runtime = standIn
	}

	args, err := h.arguments(spec, dir)
	if err != nil {
		return result{message: fmt.Sprintf("no scratch file for the dry run: %v", atomicfile.WithStableName(err, dir, h.scratch))}
	}

	out := &outputReader{overrunMarks: overrunStage1}
	switch {
	case spec.stage == 2:
		out.overrunMarks = overrunStage2
	case spec.shape != nil:
		out.holdsDump = mayBeDump
	}

	began := time.Now()
	end := execute(ctx, process{path: id.Path, args: args, env: dryRunEnv(filepath.Join(dir, "tmp")), deadline: h.Deadline, confined: true},
		out)
	a := h.read(spec, dir, out, end)
	h.log.Debug("dry run", "stage", spec.stage, "outcome", a.outcome, "words", a.message, "took", time.Since(began))

	return a
}

// arguments writes the files of the run and returns its command line. Added
// flags come first, so that a flag without its value at the end of the node's
// flags cannot consume them. Since the last flag wins, the node's flags of the
// same names are removed.
func (h *DryRunner) arguments(spec dryRun, dir string) ([]string, error) {
	args := []string{"-v=5", "--cert-dir=" + filepath.Join(dir, "pki"), "--root-dir=" + filepath.Join(dir, "root")}
	run := spec.config.run
	if spec.config.files != nil {
		run.Dir = dir
		if err := writeFiles(dir, spec.config.files); err != nil {
			return nil, err
		}
	}

	args = append(args, h.k.configFlags(run)...)
	dropped := droppedAlways
	if spec.stage == 2 {
		added := append(flagsStage2[:len(flagsStage2):len(flagsStage2)], "--"+runtimeFlag+"="+spec.runtime,
			"--volume-plugin-dir="+filepath.Join(dir, "plugins"), "--"+sysctlsFlag+"="+stopAfter(spec.sysctls, dir))
		args = append(args, added...)
		dropped = append(dropped[:len(dropped):len(dropped)], droppedStage2...)
		for _, f := range added {
			name, _, _ := strings.Cut(f[len("--"):], "=")
			dropped = append(dropped, name)
		}
	} else {
		args = append(args, flagsStage1...)
	}

	if spec.withFlags {
		args = append(args, without(h.k.flags, dropped...)...)
	} else if spec.withoutFlags {
		args = append(args, only(h.k.flags, cgroupFlag)...)
	}

	return args, nil
}

// stopSysctl is the sysctl at which stage 2 ends. Its name is that of the run's
// directory, which is random.
func stopSysctl(dir string) string { return "evenkeel." + filepath.Base(dir) }

// stopAfter returns the value of the kubelet's flag for allowed sysctls: those
// of the configuration, which the kubelet judges in this order, and the one at
// which it stops.
func stopAfter(sysctls []any, dir string) string {
	var names []string
	for _, name := range sysctls {
		names = append(names, fmt.Sprint(name))
	}

	var text strings.Builder
	w := csv.NewWriter(&text)
	_ = w.Write(append(names, stopSysctl(dir))) // a strings.Builder takes everything
	w.Flush()

	return strings.TrimSuffix(text.String(), "\n")
}

func writeFiles(dir string, files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) { // in a fixed order, so that a full disk always fails for the same file
		data, path := files[name], filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return err
		}
	}

	return nil
}

func (h *DryRunner) read(spec dryRun, dir string, out *outputReader, end exitStatus) result {
	a := result{overran: out.overrun != ""}
	if end.err != nil {
		a.message = "the dry run of the kubelet: " + end.err.Error()
		a.ownFailure = end.ownFailure || a.overran
		return a
	}

	a.strictError, a.fileFlags = oneLine(out.strictError), out.fileFlags
	if !out.truncated {
		a.dumps = out.dumps
	}

	word := out.failureText()
	// A panic, which may quote the payload, has another exit code.
	if end.code == 1 && out.failures == 1 && (spec.stage == 1 && word == acceptedStage1 ||
		spec.stage == 2 && word == fmt.Sprintf(acceptedStage2, stopSysctl(dir))) {
		a.outcome = Accepted
		a.effective = h.effective(spec.shape.read(a.dumps), dir, spec)
		return a
	}

	a.outcome = Rejected
	a.runtimeFailed = slices.ContainsFunc(runtimeErrors, func(begin string) bool { return strings.HasPrefix(word, begin) })
	a.decodeFailed = strings.HasPrefix(word, "failed to load kubelet config file, path: ")
	a.message = cmp.Or(cleanMessage(word, dir), fmt.Sprintf("the kubelet ended with exit code %d and no message", end.code))

	return a
}

// cleanMessage removes prefixes that are equal for all errors, and the names of
// temporary files.
func cleanMessage(message, dir string) string {
	if before, _, found := strings.Cut(message, ", path: &TypeMeta{"); found {
		message = before
	}
	if before, _, found := strings.Cut(message, "' is missing in '"); found { // the rest quotes the whole file, which may contain secrets
		message = before + "' is missing"
	}

	file, conf := filepath.Join(dir, wholeFile), filepath.Join(dir, dropinDir)
	for _, wrapping := range []string{
		"failed to run Kubelet: ",
		"failed to create kubelet: ",
		"panic: failed to merge global and in-flight KubeletConfiguration while setting defaults, error: ",
		"failed to validate kubelet configuration, error: ",
		fmt.Sprintf("failed to load kubelet config file, path: %s, error: ", file),
		fmt.Sprintf("failed to load Kubelet config file %s, error ", file),
		"failed to merge kubelet configs: ",
		fmt.Sprintf("failed to walk through kubelet dropin directory %q: ", conf),
		fmt.Sprintf("failed to load kubelet dropin file, path: %s, ", filepath.Join(conf, payloadDropin)),
		"error: ",
	} {
		message = strings.TrimPrefix(message, wrapping)
	}

	return oneLine(strings.ReplaceAll(message, dir+"/", ""))
}

// oneLine formats a message for a status.
func oneLine(message string) string {
	return clip(strings.Join(strings.Fields(message), " "), maxMessage)
}

// On a host with cgroup v1, almost no configuration passes validation without
// cgroupFlag, which sets cgroupField.
const (
	cgroupFlag  = "fail-cgroupv1"
	cgroupField = "failCgroupV1"
)

// effective corrects a dump, or returns nil if e is nil: it removes the effects
// of the temporary certificate directory, of -v=5 and of the cgroup flag, and
// adds --seccomp-default, which a dump does not show.
func (h *DryRunner) effective(e Effective, dir string, spec dryRun) Effective {
	if e == nil {
		return nil
	}

	for _, name := range []string{"tlsCertFile", "tlsPrivateKeyFile"} {
		if rest, ok := strings.CutPrefix(e.String(name), filepath.Join(dir, "pki")+"/"); ok {
			e[name] = filepath.Join(h.k.CertDir, rest)
		}
	}

	// Before 1.36 a dump includes the certificate that the kubelet creates for
	// itself.
	if e["tlsCertFile"] == "" && e["tlsPrivateKeyFile"] == "" && e["serverTLSBootstrap"] == false {
		e["tlsCertFile"], e["tlsPrivateKeyFile"] = filepath.Join(h.k.CertDir, "kubelet.crt"), filepath.Join(h.k.CertDir, "kubelet.key")
	}

	if value, given := last(h.k.flags, "seccomp-default"); given && spec.withFlags {
		if on, _ := strconv.ParseBool(value); on || value == "" {
			e["seccompDefault"] = true
		}
	}

	if _, given := last(h.k.flags, cgroupFlag); given && spec.withoutFlags {
		delete(e, cgroupField)
		if layers, err := spec.config.layers(); err == nil {
			if value, _ := lookupLayers(layers, splitPath(cgroupField)); value != nil {
				e[cgroupField] = value
			}
		}
	}

	return h.k.setVerbosity(e, spec.config, spec.withFlags)
}
