package component

import (
	"context"
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

// Where the two stages end. Acceptance is exactly these words: a payload can put words of its own into an error.
const (
	acceptedStage1 = "failed to run Kubelet: cannot exit on lock file contention: no lock file specified"
	acceptedStage2 = `failed to run Kubelet: bad --node-ip "0.0.0.0,::": `
)

// What a kubelet logs once it has gone on where it should have stopped. Each is logged before it serves, writes to
// the node or touches a pod.
var (
	straysStage2 = []string{"Using root directory", "Adding static pod path", "Started kubelet", "Starting to listen"}
	straysStage1 = append([]string{"Standalone mode, no API client", "Connecting to runtime service"}, straysStage2...)
)

// The flags of each stage, and the node's own flags that must not come along because they name things outside of the
// scratch directory, reach the API, or undo ours.
var (
	droppedAlways = []string{
		"config", "config-dir", "lock-file", "exit-on-lock-contention", "cert-dir", "root-dir", "kubeconfig",
		"bootstrap-kubeconfig", "v",
	}
	flagsStage1 = []string{"--exit-on-lock-contention"}
	// Stage 2 acts on what it reads. Nothing of its dump is used, so flags can keep it from what a configuration alone
	// should not reach: a file, a runtime of another socket, a better place in the queue of the OOM killer.
	flagsStage2 = []string{
		"--node-ip=0.0.0.0,::", "--authentication-token-webhook=false", "--authorization-mode=AlwaysAllow",
		"--rotate-certificates=false", "--client-ca-file=", "--image-service-endpoint=", "--oom-score-adj=1000",
	}
	droppedStage2 = []string{
		"node-ip", "authentication-token-webhook", "authorization-mode", "rotate-certificates", "client-ca-file",
		"image-service-endpoint", "oom-score-adj",
	}
)

const runtimeFlag = "container-runtime-endpoint"

const (
	dryRunDeadline = 15 * time.Second
	// dryRunMemory bounds the data of a dry run's process, in bytes. A kubelet needs about 100 MiB for a small
	// configuration, and less than half of this for one of 1 MiB.
	dryRunMemory = 1 << 30
	// atOnce bounds how many dry runs of a harness run at the same time: the node has other work.
	atOnce   = 2
	maxWords = 2000
)

// Harness asks a kubelet's own binary what it makes of a configuration, without ever running it. It may be used by
// several goroutines.
type Harness struct {
	// Deadline is how long one run may take before it is killed; 15 s unless it is changed before the first use.
	Deadline time.Duration
	// Protected are the fields that must be as they are locally before stage 2 acts on a candidate. Set it before the
	// first use.
	Protected payload.Protection

	k       *Kubelet
	scratch string
	log     *slog.Logger
	slots   chan struct{}

	mu     sync.Mutex
	proven proof    // of the binary that was seen to stop where stage 1 ends
	stage2 Identity // the binary that was seen to stop where stage 2 ends
	banned Identity // the binary that went on beyond stage 2

	version   string // of the binary that versionOf was
	versionOf Identity
}

// NewHarness returns a harness for one node's kubelet. It puts its throw-away files into scratchDir, which it makes.
func NewHarness(k *Kubelet, scratchDir string, log *slog.Logger) *Harness {
	// A relative one would be resolved by the kubelet too, but its errors name it.
	if absolute, err := filepath.Abs(scratchDir); err == nil {
		scratchDir = absolute
	}
	return &Harness{Deadline: dryRunDeadline, k: k, scratch: scratchDir, log: log, slots: make(chan struct{}, atOnce)}
}

// proof is what is known of a binary that stops where stage 1 ends.
type proof struct {
	id    Identity
	shape *dumpShape // of its dump; nil: it prints none
	// lenient: it does not say when it ignores a field that it does not know.
	lenient bool
}

// dryRun is one run that is wanted.
type dryRun struct {
	stage     int
	of        setup
	nodeFlags bool       // with the node's own flags
	bare      bool       // without them, to be compared with the run that has them
	shape     *dumpShape // how its dump is recognized; nil: it is not looked for
	runtime   string     // stage 2: the runtime's endpoint, whatever the configuration says; "": what it says
}

// answer is what came of a dry run.
type answer struct {
	outcome   Outcome // for a refused one: Rejected, though that is no verdict yet
	words     string
	lenient   string
	strayed   bool
	noRuntime bool // it was refused because the container runtime could not be reached
	undecoded bool // it was refused because the file given as --config could not be decoded
	cutShort  bool // its process exceeded its deadline, or died by itself
	effective Effective
	dumps     []string // what may be the effective configuration, if its shape is not known yet
}

// run carries out a dry run. Nothing is left of it when it returns.
func (h *Harness) run(ctx context.Context, want dryRun) answer {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-ctx.Done():
		return answer{words: ctx.Err().Error()}
	}
	dir, err := h.makeScratch()
	if err != nil {
		return answer{words: fmt.Sprintf("no scratch directory for the dry run: %v", err)}
	}
	defer removeScratch(dir, h.log)
	id, err := h.k.Identity()
	if err != nil {
		return answer{words: err.Error()}
	}
	args, err := h.arguments(want, dir)
	if err != nil {
		return answer{words: fmt.Sprintf("no scratch file for the dry run: %v", atomicfile.Renamed(err, dir, h.scratch))}
	}

	out := &transcript{strays: straysStage1}
	switch {
	case want.stage == 2:
		out.strays = straysStage2
	case want.shape != nil:
		out.holdsDump = mayBeDump
	}
	began := time.Now()
	end := execute(ctx, process{path: id.Path, args: args, env: dryRunEnv(filepath.Join(dir, "tmp")), deadline: h.Deadline, confined: true}, out)
	a := h.read(want, dir, out, end)
	h.log.Debug("dry run", "stage", want.stage, "outcome", a.outcome, "words", a.words, "took", time.Since(began))
	return a
}

// arguments writes what the run is to read, and puts ours first, where no flag that lacks its value can swallow them;
// so the node's own must not repeat them, since the last one wins.
func (h *Harness) arguments(want dryRun, dir string) ([]string, error) {
	args := []string{"-v=5", "--cert-dir=" + filepath.Join(dir, "pki"), "--root-dir=" + filepath.Join(dir, "root")}
	run := want.of.run
	if want.of.files != nil {
		run.Dir = dir
		if err := writeFiles(dir, want.of.files); err != nil {
			return nil, err
		}
	}
	args = append(args, h.k.configFlags(run)...)
	dropped := droppedAlways
	if want.stage == 2 {
		args = append(args, flagsStage2...)
		dropped = append(dropped[:len(dropped):len(dropped)], droppedStage2...)
		if want.runtime != "" {
			args = append(args, "--"+runtimeFlag+"="+want.runtime)
			dropped = append(dropped, runtimeFlag)
		}
	} else {
		args = append(args, flagsStage1...)
	}
	if want.nodeFlags {
		args = append(args, without(h.k.flags, dropped...)...)
	} else if want.bare {
		args = append(args, only(h.k.flags, cgroupFlag)...)
	}
	return args, nil
}

func writeFiles(dir string, files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) { // so that a full disk fails the same one each time
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

func (h *Harness) read(want dryRun, dir string, out *transcript, end ending) answer {
	a := answer{strayed: out.strayed != ""}
	if end.err != nil {
		a.words = "the dry run of the kubelet: " + end.err.Error()
		a.cutShort = end.itself
		return a
	}
	a.lenient = oneLine(out.lenient)
	if !out.truncated {
		a.dumps = out.dumps
	}
	word := out.lastWord()
	// A panic, which may quote the payload, ends with another code.
	if end.code == 1 && (want.stage == 1 && word == acceptedStage1 || want.stage == 2 && strings.HasPrefix(word, acceptedStage2)) {
		a.outcome = Accepted
		a.effective = h.effective(want.shape.read(a.dumps), dir, want)
		return a
	}
	a.outcome = Rejected
	a.noRuntime = ofRuntime(word)
	a.undecoded = strings.HasPrefix(word, "failed to load kubelet config file, path: ")
	a.words = cleanWords(word, dir)
	if a.words == "" {
		a.words = fmt.Sprintf("the kubelet ended with exit code %d and no word", end.code)
	}
	return a
}

// ofRuntime reports whether a kubelet says that its container runtime failed it. To connect has words of its own; the first
// question after that, for the runtime's cgroup driver, ends with the bare error of gRPC. Stage 2 talks gRPC to nothing else.
func ofRuntime(word string) bool {
	return strings.Contains(word, "validate CRI v1 runtime API for endpoint") ||
		strings.Contains(word, "validate CRI v1 image API for endpoint") ||
		strings.HasPrefix(strings.TrimPrefix(word, "failed to run Kubelet: "), "rpc error: code = ")
}

// cleanWords takes the wrapping off the kubelet's own words: what it says for every error alike, and the names of
// throw-away files.
func cleanWords(words, dir string) string {
	if before, _, found := strings.Cut(words, ", path: &TypeMeta{"); found {
		words = before
	}
	if before, _, found := strings.Cut(words, "' is missing in '"); found { // the whole file, with what may be secret
		words = before + "' is missing"
	}
	file, conf := filepath.Join(dir, wholeFile), filepath.Join(dir, dropinDir)
	for _, wrapping := range []string{
		"failed to run Kubelet: ",
		"panic: failed to merge global and in-flight KubeletConfiguration while setting defaults, error: ",
		"failed to validate kubelet configuration, error: ",
		fmt.Sprintf("failed to load kubelet config file, path: %s, error: ", file),
		fmt.Sprintf("failed to load Kubelet config file %s, error ", file),
		"failed to merge kubelet configs: ",
		fmt.Sprintf("failed to walk through kubelet dropin directory %q: ", conf),
		fmt.Sprintf("failed to load kubelet dropin file, path: %s, ", filepath.Join(conf, ourDropin)),
		"error: ",
	} {
		words = strings.TrimPrefix(words, wrapping)
	}
	return oneLine(strings.ReplaceAll(words, dir+"/", ""))
}

// oneLine makes words fit for a status.
func oneLine(words string) string { return clip(strings.Join(strings.Fields(words), " "), maxWords) }

// cgroupFlag is the flag without which, on a host with cgroup v1, hardly any configuration passes validation.
// cgroupField is what it sets.
const (
	cgroupFlag  = "fail-cgroupv1"
	cgroupField = "failCgroupV1"
)

// effective puts right in a dump what only the dry run made of it: the throw-away certificate directory, -v=5, and the one
// flag of a bare run; and what a dump leaves out: the kubelet takes the flag --seccomp-default or the field. It returns nil
// if there is no dump.
func (h *Harness) effective(e Effective, dir string, want dryRun) Effective {
	if e == nil {
		return nil
	}
	for _, name := range []string{"tlsCertFile", "tlsPrivateKeyFile"} {
		if rest, ok := strings.CutPrefix(e.String(name), filepath.Join(dir, "pki")+"/"); ok {
			e[name] = filepath.Join(h.k.CertDir, rest)
		}
	}
	// Until 1.36 a dump has the certificate that the kubelet makes for itself.
	if e["tlsCertFile"] == "" && e["tlsPrivateKeyFile"] == "" && e["serverTLSBootstrap"] == false {
		e["tlsCertFile"], e["tlsPrivateKeyFile"] = filepath.Join(h.k.CertDir, "kubelet.crt"), filepath.Join(h.k.CertDir, "kubelet.key")
	}
	if value, given := last(h.k.flags, "seccomp-default"); given && want.nodeFlags {
		if on, _ := strconv.ParseBool(value); on || value == "" {
			e["seccompDefault"] = true
		}
	}
	if _, given := last(h.k.flags, cgroupFlag); given && want.bare {
		delete(e, cgroupField)
		if layers, err := want.of.layers(); err == nil {
			if value, _ := topmost(layers, splitPath(cgroupField)); value != nil {
				e[cgroupField] = value
			}
		}
	}
	return h.k.setVerbosity(e, want.of, want.nodeFlags)
}
