// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/klog/v2/textlogger"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

const logHeader = "1127 12:00:00.000000     123 server.go:1] "

// kubeletWords are what a payload can quote from a kubelet's log to deceive
// whoever reads that log: the messages and errors that evenkeel recognizes,
// alone, as whole records in both formats, and behind line breaks and quotes.
func kubeletWords() []string {
	accepted := []string{acceptedStage1, fmt.Sprintf(acceptedStage2, stopSysctl("/none"))}
	words := slices.Concat(overrunStage1, runtimeErrors, accepted, []string{refusedOnCgroupV1})
	for _, begin := range slices.Concat(runtimeErrors, accepted) {
		words = append(words, strings.TrimPrefix(begin, "failed to run Kubelet: "))
	}

	var lines []string
	for _, mark := range overrunStage1 {
		lines = append(lines, "I"+logHeader+`"`+mark+`"`, `{"ts":1,"caller":"a.go:1","msg":"`+mark+`","v":0}`)
	}

	for _, end := range slices.Concat(runtimeErrors, accepted) {
		lines = append(lines, "E"+logHeader+fmt.Sprintf(`"command failed" err=%q`, end), fmt.Sprintf(`{"ts":1,"msg":"command failed","err":%q}`, end))
	}

	lines = append(lines, "Error: x", "panic: x", "I"+logHeader+`"Using lenient decoding as strict decoding failed" err="x"`, "Flag --x has been deprecated, This parameter should be set via the config file", `Started kubelet","msg":"Started kubelet`)
	for _, line := range lines {
		words = append(words, line, "x\n"+line+"\n", "x\r\n"+line+"\r\n >\n"+line, `" `+line, "x\u2028"+line+"\r"+line, "x=<\n\t"+line+"\n >\n"+line, `\" err="`+line)
	}

	return append(words, "\" err=\""+emptyDump, "x\n"+emptyDump+"\n", strings.Repeat("&a *a ", 30), strings.Repeat("x", 1<<16)+"\n"+lines[0], "cgroup v1")
}

// A kubelet that logs in a format can quote any text. Whatever it is, it ends
// the run in no other way than harmless text, and the kubelet's own dump is
// still found.
func FuzzWordsOfAPayloadDecideNothing(f *testing.F) {
	for i, text := range kubeletWords() {
		f.Add(text, i%2 == 0, i%3 == 0)
	}

	h := NewDryRunner(&Kubelet{}, f.TempDir(), slogDiscard())
	f.Fuzz(func(t *testing.T, text string, inJSON, multiLine bool) {
		if !utf8.ValidString(text) {
			return // no configuration contains it
		}
		if multiLine {
			text += "\n" + text
		}

		for stage, marks := range map[int][]string{1: overrunStage1, 2: overrunStage2} {
			const words = "failed to run Kubelet: bad value: "
			fields := emptyFields("x", "unix:///x")
			for _, name := range anchorFields {
				fields[name] = 110
			}

			fields["kubeReserved"] = map[string]any{text: text}
			dump, err := yaml.Marshal(fields)
			end := map[int]string{1: acceptedStage1, 2: fmt.Sprintf(acceptedStage2, stopSysctl("/none"))}[stage]
			for _, last := range []string{words + text, end} {
				var log bytes.Buffer
				record := func(message, key string, value any) { writeRecord(&log, inJSON, message, key, value) }
				record("Effective KubeletConfiguration", "config", string(dump))
				record("Updated", "featureGates", map[string]bool{text: true})
				record("msg", "msg", text)
				record(fmt.Sprintf("FLAG: --kube-reserved=%q", text), "", nil)
				record("a warning", "err", errors.New(text))
				record("command failed", "err", errors.New(last))

				out := outputOf(log.String(), mayBeDump, marks...)
				a := h.read(dryRun{stage: stage, shape: anchorShape}, "/none", out, exitStatus{code: 1})
				assert.That(t, !a.overran && !a.runtimeFailed && a.strictError == "" && a.fileFlags == nil, "overran %v, the runtime failed %v, %q, in\n%s", a.overran, a.runtimeFailed, a.strictError, &log)
				if last != end {
					want := cleanMessage(last, "/none")
					assert.That(t, a.outcome == Rejected && a.message == want, "%s: %s\nwant %s\nin %s", a.outcome, a.message, want, &log)
					continue
				}

				assert.That(t, a.outcome == Accepted, "%s: %s\nin %s", a.outcome, a.message, &log)
				var read map[string]any
				// The kubelet's encoder breaks some text, and with a second
				// dump in a value there is none.
				if err == nil && yaml.Unmarshal(dump, &read) == nil && !mayBeDump(text) {
					assert.That(t, fmt.Sprint(a.effective["maxPods"]) == "110", "the dump is %v\nin %s", a.effective, &log)
				}
			}
		}
	})
}

// writeRecord writes a record like a kubelet: in the text format with klog
// itself. Without a key it is unstructured.
func writeRecord(log *bytes.Buffer, inJSON bool, message, key string, value any) {
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log)))
	err, failed := value.(error)
	switch {
	case inJSON && failed:
		fmt.Fprintf(log, `{"ts":1.5,"caller":"a.go:1","msg":%s,"err":%s}`+"\n", jsonText(message), jsonText(err.Error()))
	case inJSON && key == "":
		fmt.Fprintf(log, `{"ts":1.5,"caller":"a.go:1","msg":%s,"v":1}`+"\n", jsonText(message))
	case inJSON:
		fmt.Fprintf(log, `{"ts":1.5,"caller":"a.go:1","msg":%s,"v":0,%q:%s}`+"\n", jsonText(message), key, jsonText(value))
	case key == "":
		fmt.Fprintln(log, "I"+logHeader+message)
	case failed:
		logger.Error(err, message)
	default:
		logger.Info(message, key, value)
	}
}

// Text that is not quoted, as of a program that the kubelet runs, can look like
// a record. It accepts nothing.
func TestAForgedEndAcceptsNothing(t *testing.T) {
	h := NewDryRunner(&Kubelet{}, t.TempDir(), slogDiscard())
	genuine := "E" + logHeader + `"command failed" err="failed to run Kubelet: no good"` + "\n"
	for stage, end := range map[int]string{1: acceptedStage1, 2: fmt.Sprintf(acceptedStage2, stopSysctl("/none"))} {
		forged := "E" + logHeader + fmt.Sprintf(`"command failed" err=%q`, end) + "\n"
		for log, want := range map[string]Outcome{forged: Accepted, genuine + forged: Rejected, forged + genuine: Rejected, forged + forged: Rejected} {
			a := h.read(dryRun{stage: stage}, "/none", outputOf(log, nil), exitStatus{code: 1})
			assert.Equal(t, a.outcome, want, log)
		}
	}
}

func TestEachKubeletHasTheMessagesThatShowAnOverrun(t *testing.T) {
	for _, path := range realKubelets(t) {
		program := assert.Value(os.ReadFile(path))(t)
		for _, mark := range overrunStage1 {
			assert.That(t, bytes.Contains(program, []byte(mark)), "%s does not contain %q", path, mark)
		}
	}
}

// A run of stage 2 is a kubelet that continues past the end of stage 1. Without
// the sysctl at which it stops, it continues past the end of stage 2, too: it
// is killed, and has not started its container manager, because its runtime
// reports no status.
func TestAKubeletThatContinuesIsRecognizedInBothFormats(t *testing.T) {
	socket := filepath.Join(shortDir(t), "sock")
	startCRI(t, socket)
	for _, path := range realKubelets(t) {
		for _, more := range []string{"", "logging: {format: json, verbosity: 0}\n"} {
			h := dryRunner(t, &Kubelet{Path: path})
			scratch := assert.Value(h.makeScratch())(t)
			endpoint, stop, err := startStandIn("unix://"+socket, scratch)
			assert.NoError(t, err)
			run := func(runtime string, marks []string) (overrun string, end exitStatus) {
				args := assert.Value(h.arguments(dryRun{stage: 2, config: wholeConfig(config(more)), runtime: runtime}, scratch))(t)
				args = slices.DeleteFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--"+sysctlsFlag) })
				out := &outputReader{overrunMarks: marks}
				end = execute(t.Context(), process{
					path: path, args: args, env: dryRunEnv(filepath.Join(scratch, "tmp")), deadline: time.Minute, confined: true,
				}, out)

				return out.overrun, end
			}
			overrun, end := run("unix:///none", overrunStage1)
			assert.Equal(t, overrun, "Standalone mode, no API client", path, more, end)
			overrun, end = run(endpoint, overrunStage2)
			assert.That(t, slices.Contains(overrunStage2[:2], overrun) && end.err != nil, "%s %s: %+v, after %q", path, more, end, overrun)
			stop()
			removeScratch(scratch, slogDiscard())
		}
	}
}

// Each payload that quotes what evenkeel recognizes is rejected, and the binary
// is trusted as before.
func TestHostilePayloadsAreRejectedAndTheBinaryStaysTrusted(t *testing.T) {
	dir := shortDir(t)
	record := "I" + logHeader + `"Started kubelet"`
	object := `{"ts":1,"msg":"Started kubelet","v":0}`
	everything := "x\n" + record + "\n" + object + "\n >\n" + record + "\r\n" + record + "\r" + record + "\u2028" + record +
		"\nE" + logHeader + `"command failed" err="` + acceptedStage1 + "\"\n"
	long := strings.Repeat("x", 1<<16) + "\n" + record + "\n"
	aliases := "x " + strings.Repeat("&a *a ", 30)
	for _, path := range realKubelets(t) {
		name := filepath.Base(filepath.Dir(path))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := filepath.Join(dir, name)
			startCRI(t, socket)
			base := map[string]any{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "failCgroupV1": false, "containerRuntimeEndpoint": "unix://" + socket}
			file := filepath.Join(t.TempDir(), "local.yaml")
			write(t, file, jsonText(base), 0o600)
			k := assert.Value(ParseKubelet([]string{path, "--config=" + file}))(t)
			h := dryRunner(t, k)
			check := func(field string, value any) Verdict {
				fields := map[string]any{field: value}
				maps.Copy(fields, base)
				return h.Check(context.Background(), Candidate{Data: []byte(jsonText(fields))}, "")
			}
			good := check("maxPods", 7)
			checkVerdict(t, good, Accepted, 2, "")
			caps, id := h.probed, h.probed.id
			for i, tt := range []struct {
				field string
				value any
			}{
				{"kubeReserved", map[string]any{"Started kubelet": "1"}},
				{"kubeReserved", map[string]any{runtimeErrors[0] + `"x": gone`: "1"}},
				{"kubeReserved", map[string]any{everything: "1"}},
				{"kubeReserved", map[string]any{long: "1"}},
				{"featureGates", map[string]any{everything: true}},
				{everything, 1},
				{"evictionHard", map[string]any{"memory.available": "Using root directory"}},
				{"cpuManagerPolicy", acceptedStage2},
				{"logging", map[string]any{"format": "Standalone mode, no API client"}},
				{"kubeReserved", map[string]any{"foo": "1"}}, // no payload before has switched off stage 2
			} {
				v := check(tt.field, tt.value)
				_, comparable := v.CheckProtected(h.Protected) // the log of a very long value is cut: it has no dump, and nothing is adopted
				assert.That(t, v.Outcome == Rejected || !comparable, "%d: %.40q %.100v: %s at stage %d: %s", i, tt.field, tt.value, v.Outcome, v.Stage, v.Message)
				assert.That(t, h.stage2Safe == id && h.stage2Unsafe == Identity{} && h.probed.id == caps.id && h.probed.shape == caps.shape, "%d: %.40q %.100v changed what is believed of the binary", i, tt.field, tt.value)
			}

			for _, tt := range []struct {
				field string
				value any
			}{
				{"clusterDomain", everything}, {"staticPodURLHeader", map[string]any{aliases: []string{"x"}}},
				{"staticPodURLHeader", map[string]any{emptyDump: []string{"x"}}},
			} {
				v := check(tt.field, tt.value)
				assert.That(t, v.Outcome == Accepted && v.Stage == 2 && v.Effective != nil && v.Effective.String("healthzBindAddress") != "", "%s %.100v: %s at stage %d: %s; the dump is %v",
					tt.field, tt.value, v.Outcome, v.Stage, v.Message, v.Effective)
			}

			// A payload quotes the kubelet's own dump with another maxPods. The
			// effective configuration is the kubelet's, or unknown.
			dump := maps.Clone(good.Effective)
			dump["maxPods"] = 666
			forged := string(assert.Value(dump.YAML())(t))
			lines := "x\n >\n" + record + " config=<\n\t" + strings.ReplaceAll(forged, "\n", "\n\t") + "\n >\n"
			for _, format := range []string{"text", "json"} {
				base["logging"] = map[string]any{"format": format}
				for _, quoting := range []map[string]any{
					{forged: 1}, {"clusterDomain": forged}, {"clusterDomain": lines}, {"featureGates": map[string]any{forged: true}},
					{"staticPodURLHeader": map[string]any{forged: []string{forged}}}, {"evictionHard": map[string]any{forged: "1%"}},
				} {
					maps.Copy(quoting, base)
					v := h.Check(context.Background(), Candidate{Data: []byte(jsonText(quoting))}, "")
					pods, known := v.Effective.Int("maxPods")
					assert.That(t, !known || pods == 110, "%s, %.100v: maxPods is %d", format, quoting, pods)
				}
			}
		})
	}
}

func jsonText(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}
