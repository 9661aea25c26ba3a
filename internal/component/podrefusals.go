// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// PodRefusal is the last error of a kubelet with a pod.
type PodRefusal struct {
	Namespace, Name string
	// Attempt differs from that of other attempts; empty: the log has only
	// back-offs. Seen is of the last record, which can be a back-off.
	Attempt, Seen string
	Words         string // of the kubelet or the runtime, in one line without credentials, at most 200 columns; empty: no refusal
	Timeout       bool   // the runtime took too long, which a shorter runtimeRequestTimeout or a runtime that hangs causes
}

const maxRefusalWords = 200

// The error that ends an attempt of the kubelets 1.33 to 1.38 to start a pod.
// Only its beginning counts, because the rest quotes the runtime and the pod. A
// pod of which an earlier container fails for another reason is no witness.
// Volumes, images, Secrets and programs that exit have other beginnings.
var refusalHeads = regexp.MustCompile(`^\[?failed to "(?:CreatePodSandbox|StartContainer)" for "[^"]*" with ` +
	`(CreatePodSandboxError|CreateContainerError|RunContainerError|PreCreateHookError|PreStartHookError): |` +
	`^(failed to ensure that the pod): \S+ cgroups exist and are correctly applied: `)

// othersFault are words of runtimes (containerd and CRI-O) about what a
// configuration of the kubelet does not cause: what the pod asks for, the
// network plugin, a full disk, and a runtime that does not answer. Short words
// count only outside of names that a pod's author chose.
var othersFault = regexp.MustCompile(`(?i)\bexec: \\*"|executable file .* not found|no command specified|chdir to cwd|` +
	`runtime ?class|runtime ?handler|no runtime for |is not a shared mount|failed to generate spec: failed to stat|` +
	`\bcni\b|network for sandbox|pod network sandbox|cni network|error mounting|failed to mount|unable to find (user|group)|` +
	`memory limit|support user namespaces|no matching entries in (passwd|group)|no users found|cdi device|oom-kill|(^|[\s(:])mkdir /|` +
	`(^|[\s(:])(seccomp|apparmor|selinux|sysctls?|capability|capabilities)([\s:,.)]|$)|` +
	`no space left on device|read-only file system|too many open files|code = unavailable|connection refused|transport: `)

// timedOut are the words of a request to the runtime that took too long, and
// reserved those of the next one while it still goes on.
var (
	timedOut = regexp.MustCompile(`(?i)deadline ?exceeded`)
	reserved = regexp.MustCompile(`(?i)failed to reserve (sandbox|container) name`)
)

// OthersFault reports whether an error of a kubelet or its runtime about a pod
// has another cause than the kubelet's configuration.
func OthersFault(words string) bool {
	return othersFault.MatchString(words) || reserved.MatchString(words)
}

// noise is what the words of each refusal begin with.
var noise = regexp.MustCompile(`^(Failed to create sandbox for pod "[^"]*": )?(rpc error: code = Unknown desc = )?`)

// backOff is the error of a kubelet that waits before it tries again.
var backOff = regexp.MustCompile(`^\[?failed to "StartContainer" for "[^"]*" with CrashLoopBackOff: `)

// PodRefusals returns the last error with each pod, from lines of the kubelet's
// log.
func PodRefusals(log []byte) []PodRefusal {
	var found []PodRefusal
	at := map[string]int{}
	for line := range strings.Lines(string(log)) {
		line = strings.TrimRight(line, "\r\n")
		if !strings.Contains(line, "Error syncing pod, skipping") {
			continue
		}

		r, ok := parseRecord(line)
		if !ok || r.message != "Error syncing pod, skipping" || r.open != "" {
			continue
		}

		namespace, name, ok := podName(r.value("pod"))
		err := r.value("err")
		if !ok {
			continue
		}

		i, known := at[namespace+"/"+name]
		if !known {
			i = len(found)
			at[namespace+"/"+name] = i
			found = append(found, PodRefusal{Namespace: namespace, Name: name})
		}

		found[i].Seen = strings.ToValidUTF8(line[:min(len(line), 40)], "")
		if !backOff.MatchString(err) {
			found[i].Attempt = found[i].Seen
			found[i].Words, found[i].Timeout = refusalWords(err)
		}
	}

	return found
}

var objectRef = regexp.MustCompile(`^\{"name":"([^"]+)","namespace":"([^"]+)"\}$`)

// podName splits the name of a pod: the text format has namespace/name, and
// JSON an object.
func podName(value string) (namespace, name string, ok bool) {
	if m := objectRef.FindStringSubmatch(value); m != nil {
		return m[2], m[1], true
	}

	namespace, name, ok = strings.Cut(value, "/")

	return namespace, name, ok && namespace != "" && name != ""
}

// refusalWords returns the words of an error that refuses a pod, and whether
// the runtime took too long; empty if it does not refuse it, or if the
// configuration cannot be the cause.
func refusalWords(err string) (words string, timeout bool) {
	head := refusalHeads.FindStringSubmatch(err)
	if head == nil {
		return "", false
	}

	rest := err[len(head[0]):]
	if quoted, e := strconv.QuotedPrefix(rest); e == nil {
		rest, _ = strconv.Unquote(quoted)
	}
	if othersFault.MatchString(rest) {
		return "", false
	}

	words = printable.Truncate(printable.Line(payload.MaskText(head[1]+head[2]+": "+noise.ReplaceAllString(rest, ""))), maxRefusalWords)

	return words, timedOut.MatchString(rest) || reserved.MatchString(rest)
}
