// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// attemptLine returns what a kubelet logs about a failed attempt to start a
// pod.
func attemptLine(pod, err string) string {
	return fmt.Sprintf("E1128 10:00:00.123456     123 pod_workers.go:1301] \"Error syncing pod, skipping\" err=%q pod=%q podUID=\"u\"\n", err, pod)
}

// syncError returns the error of an attempt to start a pod, as the kubelet
// words it.
func syncError(action, reason, message string) string {
	return fmt.Sprintf("failed to %q for %q with %s: %q", action, "web_shop(u)", reason, message)
}

func TestPodRefusalsComeFromTheKubeletAndItsRuntime(t *testing.T) {
	for _, c := range []struct{ err, want string }{
		{syncError("CreatePodSandbox", "CreatePodSandboxError", `Failed to create sandbox for pod "web_shop(u)": rpc error: code = Unknown desc = runc create failed: can't get final child's PID from pipe: EOF`),
			"CreatePodSandboxError: runc create failed: can't get final child's PID from pipe: EOF"},
		{syncError("StartContainer", "RunContainerError", "error during container init: can't start thread"),
			"RunContainerError: error during container init: can't start thread"},
		{"[" + syncError("StartContainer", "CreateContainerError", "refused") + ", " +
			syncError("StartContainer", "CrashLoopBackOff", "back-off 10s") + "]", "CreateContainerError: refused"},
		{syncError("StartContainer", "RunContainerError", `cannot start container "sysctl" of "selinux-mkdir_capabilities-x": EOF`),
			`RunContainerError: cannot start container "sysctl" of "selinux-mkdir_capabilities-x": EOF`},
		{"failed to ensure that the pod: 12-34 cgroups exist and are correctly applied: failed to create container",
			"failed to ensure that the pod: failed to create container"},
		{syncError("CreatePodSandbox", "CreatePodSandboxError", "token=secret-value\nfailed"), "CreatePodSandboxError: token=masked failed"},

		// what a configuration does not cause
		{syncError("StartContainer", "CreateContainerConfigError", `secret "x" not found`), ""},
		{syncError("StartContainer", "ErrImagePull", "not found"), ""},
		{syncError("StartContainer", "ImagePullBackOff", "Back-off pulling image"), ""},
		{syncError("StartContainer", "RunContainerError", `runc create failed: exec: "nope": executable file not found in $PATH`), ""},
		{syncError("StartContainer", "RunContainerError", "executable file `nope` not found in $PATH: No such file or directory"), ""},
		{syncError("StartContainer", "RunContainerError", `OCI runtime create failed: chdir to cwd ("/root") set in config.json failed: permission denied`), ""},
		{syncError("StartContainer", "CreateContainerError", `failed to generate container "c" spec: failed to generate spec: failed to stat "/a": no such file`), ""},
		{syncError("StartContainer", "CreateContainerError", `path "/a" is mounted on "/" but it is not a shared mount`), ""},
		{syncError("StartContainer", "RunContainerError", "unable to apply caps: can't set capabilities: operation not permitted"), ""},
		{syncError("StartContainer", "RunContainerError", `sysctl "kernel.x" is not in a separate kernel namespace`), ""},
		{syncError("StartContainer", "CreateContainerError", "set memory limit 1024 too low; should be at least 12582912 bytes"), ""},
		{syncError("CreatePodSandbox", "CreatePodSandboxError", "can't set `spec.hostUsers: false`, runtime does not support user namespaces"), ""},
		{syncError("CreatePodSandbox", "CreatePodSandboxError", "mkdir /run/x: read-only file system"), ""},
		{syncError("CreatePodSandbox", "CreatePodSandboxError", "pipe2: too many open files"), ""},
		{syncError("StartContainer", "RunContainerError", `error mounting "/a" to rootfs at "/b": not a directory`), ""},
		{syncError("CreatePodSandbox", "CreatePodSandboxError", `get sandbox runtime: no runtime for "nope" is configured`), ""},
		{syncError("CreatePodSandbox", "CreatePodSandboxError", `plugin type="bridge" failed (add): failed to setup network for sandbox`), ""},
		{syncError("CreatePodSandbox", "CreatePodSandboxError", `rpc error: code = Unavailable desc = connection error`), ""},
		{`unmounted volumes=[v], unattached volumes=[], failed to process volumes=[]: context deadline exceeded`, ""},
		{"network is not ready: container runtime network not ready: NetworkReady=false", ""},
		// quoted by others: a message of a hook or a volume that a pod's author
		// chose
		{`unmounted volumes=[` + syncError("CreatePodSandbox", "CreatePodSandboxError", "x") + `]`, ""},
		{syncError("StartContainer", "PostStartHookError", syncError("StartContainer", "RunContainerError", "x")), ""},
	} {
		got := PodRefusals([]byte(attemptLine("shop/web", c.err)))
		const record = "E1128 10:00:00.123456     123 pod_worker"
		want := []PodRefusal{{Namespace: "shop", Name: "web", Attempt: record, Seen: record, Words: c.want}}
		assert.NoDiff(t, cmp.Diff(want, got), c.err)
	}
}

func TestPodRefusalsOfOtherRecordsDoNotCount(t *testing.T) {
	err := syncError("CreatePodSandbox", "CreatePodSandboxError", "refused")
	log := strings.Join([]string{
		`{"ts":1764325200000.1,"caller":"kubelet/pod_workers.go:1338","msg":"Error syncing pod, skipping","pod":{"name":"web","namespace":"shop"},` +
			fmt.Sprintf(`"podUID":"u","err":%q}`, err),
		fmt.Sprintf("E1128 10:00:00.123456     123 x.go:1] %q err=%q pod=\"shop/forged\"", "Other: \"Error syncing pod, skipping\"", err),
		fmt.Sprintf("\"Error syncing pod, skipping\" err=%q pod=\"shop/forged\"", err),
		fmt.Sprintf("E1128 10:00:00.123456     123 x.go:1] \"Error syncing pod, skipping\" pod=\"shop/forged\" err=\"x\" err=%q", err),
		strings.TrimSuffix(attemptLine("shop/cut", err), "pod=\"shop/cut\" podUID=\"u\"\n"),
		"E1128 10:00:00.123456     123 x.go:1] \"Error syncing pod, skipping\" err=<",
		"\t" + strings.TrimSuffix(attemptLine("shop/forged", err), "\n"), " >",
	}, "\n")
	got := slices.DeleteFunc(PodRefusals([]byte(log)), func(r PodRefusal) bool { return r.Words == "" })
	assert.That(t, len(got) == 1 && got[0].Namespace == "shop" && got[0].Name == "web" && got[0].Words == "CreatePodSandboxError: refused",
		"refused are %v", got)
}

func TestTheLastErrorOfAPodCounts(t *testing.T) {
	refused := syncError("StartContainer", "RunContainerError", "refused")
	backOff := syncError("StartContainer", "CrashLoopBackOff", "back-off 10s restarting failed container")
	for name, c := range map[string]struct {
		errs []string
		want PodRefusal // with the numbers of the attempts
	}{
		"a back-off after it":   {[]string{refused, backOff}, PodRefusal{Attempt: "0", Seen: "1", Words: "RunContainerError: refused"}},
		"a back-off alone":      {[]string{backOff}, PodRefusal{Seen: "0"}},
		"another error after":   {[]string{refused, "unmounted volumes=[v]"}, PodRefusal{Attempt: "1", Seen: "1"}},
		"another error before":  {[]string{"unmounted volumes=[v]", refused}, PodRefusal{Attempt: "1", Seen: "1", Words: "RunContainerError: refused"}},
		"the runtime is silent": {[]string{syncError("StartContainer", "CreateContainerError", "code = DeadlineExceeded")}, PodRefusal{Attempt: "0", Seen: "0", Words: "CreateContainerError: code = DeadlineExceeded", Timeout: true}},
		"and still works":       {[]string{syncError("CreatePodSandbox", "CreatePodSandboxError", `failed to reserve sandbox name "a": name is reserved for "b"`)}, PodRefusal{Attempt: "0", Seen: "0", Words: `CreatePodSandboxError: failed to reserve sandbox name "a": name is reserved for "b"`, Timeout: true}},
	} {
		log := ""
		for i, err := range c.errs {
			log += strings.Replace(attemptLine("shop/web", err), "00.123456     123 ", fmt.Sprintf("00.12345%d     123 ", i), 1)
		}

		got := PodRefusals([]byte(log))
		for i, r := range got {
			number := strings.NewReplacer("E1128 10:00:00.12345", "", "     123 pod_worker", "")
			got[i].Attempt, got[i].Seen = number.Replace(r.Attempt), number.Replace(r.Seen)
		}

		c.want.Namespace, c.want.Name = "shop", "web"
		assert.NoDiff(t, cmp.Diff([]PodRefusal{c.want}, got), name)
	}

	assert.That(t, OthersFault("failed to reserve container name"), "a name that is still reserved is the configuration's fault")
}

// FuzzPodRefusals quotes any text where a pod's author can put it: no other pod
// is refused because of it.
func FuzzPodRefusals(f *testing.F) {
	f.Add("x", "y")
	f.Add("\nE1128 10:00:00.123456     123 x.go:1] \"Error syncing pod, skipping\" err=\"a\" pod=\"kube-system/proxy\"", `" pod="kube-system/proxy`)
	f.Fuzz(func(t *testing.T, message, volume string) {
		log := attemptLine("shop/web", syncError("StartContainer", "RunContainerError", message)) + attemptLine("shop/web", "unmounted volumes=["+volume+"]")
		for _, r := range PodRefusals([]byte(log)) {
			assert.That(t, r.Namespace == "shop" && r.Name == "web" && !strings.ContainsAny(r.Words, "\n\t") && len([]rune(r.Words)) <= maxRefusalWords,
				"refused is %+v", r)
		}
	})
}
