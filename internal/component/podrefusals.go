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

// PodRefusal is a failed attempt of a kubelet to start a pod.
type PodRefusal struct {
	Namespace, Name string
	Attempt         string // differs from that of other attempts
	Words           string // of the kubelet or the runtime, in one line without credentials, at most 200 columns
}

const maxRefusalWords = 200

// The error that ends an attempt of the kubelets 1.33 to 1.38 to start a pod. Only its beginning counts, because the rest quotes the
// runtime and the pod. Volumes, images, Secrets and programs that exit have other beginnings.
var refusalHeads = regexp.MustCompile(`^\[?failed to "(?:CreatePodSandbox|StartContainer)" for "[^"]*" with ` +
	`(CreatePodSandboxError|CreateContainerError|RunContainerError|PreCreateHookError|PreStartHookError): |` +
	`^(failed to ensure that the pod): \S+ cgroups exist and are correctly applied: `)

// othersFault are words of runtimes (containerd and CRI-O) about what a configuration of the kubelet does not cause: what the pod asks
// for, the network plugin, a full disk, and a runtime that does not answer.
var othersFault = regexp.MustCompile(`(?i)\bexec: \\*"|no command specified|runtime ?class|runtime ?handler|no runtime for |` +
	`\bcni\b|network for sandbox|pod network sandbox|cni network|error mounting|failed to mount|mkdir |unable to find (user|group)|` +
	`no matching entries in (passwd|group)|no users found|seccomp|apparmor|selinux|sysctl|cdi device|capabilit|oom-kill|` +
	`no space left on device|code = unavailable|connection refused|transport: `)

// OthersFault reports whether an error of a kubelet or its runtime about a pod has another cause than the kubelet's configuration.
func OthersFault(words string) bool { return othersFault.MatchString(words) }

// noise is what the words of each refusal begin with.
var noise = regexp.MustCompile(`^(Failed to create sandbox for pod "[^"]*": )?(rpc error: code = Unknown desc = )?`)

// PodRefusals returns the last attempt to start each pod that a kubelet or its runtime refused, from lines of the kubelet's log.
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
		values := map[string]string{}
		for _, p := range r.pairs {
			if _, twice := values[p.key]; !twice {
				values[p.key] = p.value
			}
		}
		namespace, name, ok := podName(values["pod"])
		words := refusalWords(values["err"])
		if !ok || words == "" {
			continue
		}
		refusal := PodRefusal{namespace, name, strings.ToValidUTF8(line[:min(len(line), 40)], ""), words}
		if i, known := at[namespace+"/"+name]; known {
			found[i] = refusal
			continue
		}
		at[namespace+"/"+name] = len(found)
		found = append(found, refusal)
	}
	return found
}

var objectRef = regexp.MustCompile(`^\{"name":"([^"]+)","namespace":"([^"]+)"\}$`)

// podName splits the name of a pod: the text format has namespace/name, and JSON an object.
func podName(value string) (namespace, name string, ok bool) {
	if m := objectRef.FindStringSubmatch(value); m != nil {
		return m[2], m[1], true
	}
	namespace, name, ok = strings.Cut(value, "/")
	return namespace, name, ok && namespace != "" && name != ""
}

// refusalWords returns the words of an error that refuses a pod; empty if it does not, or if the configuration cannot be the cause.
func refusalWords(err string) string {
	head := refusalHeads.FindStringSubmatch(err)
	if head == nil {
		return ""
	}
	rest := err[len(head[0]):]
	if quoted, e := strconv.QuotedPrefix(rest); e == nil {
		rest, _ = strconv.Unquote(quoted)
	}
	if OthersFault(rest) {
		return ""
	}
	return printable.Columns(printable.Line(payload.MaskText(head[1]+head[2]+": "+noise.ReplaceAllString(rest, ""))), maxRefusalWords)
}
