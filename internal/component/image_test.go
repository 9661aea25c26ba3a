// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

const (
	proxyImage   = "registry.k8s.io/kube-proxy:v1.37.2"
	proxyInImage = "/usr/local/bin/kube-proxy"
)

// imageComponent returns the kube-proxy of an image and checks at the end of
// the test that its runs left nothing.
func imageComponent(t *testing.T, reference string) Component {
	t.Helper()
	return assert.Value(NewImage("kube-proxy", reference, scratchDir(t), slogDiscard()))(t)
}

func ctr(args ...string) (string, error) {
	out, err := exec.Command("ctr", append([]string{"--namespace=k8s.io"}, args...)...).Output()
	return strings.TrimSpace(string(out)), err
}

// mustHaveNoContainers checks that dry runs left nothing in containerd or on
// the host.
func mustHaveNoContainers(t *testing.T) {
	t.Helper()
	var left []string
	for _, list := range []string{"containers ls -q", "tasks ls -q", "leases ls -q"} {
		left = append(left, strings.Fields(assert.Value(ctr(strings.Fields(list)...))(t, list))...)
	}

	for line := range strings.Lines(assert.Value(ctr("snapshots", "ls"))(t)) {
		if f := strings.Fields(line); strings.HasPrefix(line, containerPrefix) || f[len(f)-1] == "Active" {
			left = append(left, "snapshot "+f[0])
		}
	}

	for _, pattern := range []string{"/sys/fs/cgroup/" + containerPrefix + "*", "/sys/fs/cgroup/*/" + containerPrefix + "*"} {
		paths, _ := filepath.Glob(pattern)
		left = append(left, paths...)
	}

	assert.That(t, len(left) == 0, "left: %q", left)
}

func TestWithoutContainerdAnImageGivesNoVerdict(t *testing.T) {
	const cannot = "cannot look up the image " + proxyImage + " in containerd: "
	t.Run("no ctr", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		c := imageComponent(t, proxyImage)
		const want = cannot + "ctr not found in PATH: install containerd"
		checkVerdict(t, c.Validate(t.Context(), proxyConfig("")), CouldNotTell, 0, want)
		assert.ErrorHas(t, assert.Err(c.Version(t.Context())), want, "version")
		assert.ErrorHas(t, assert.Err(c.PreferredVersion(t.Context())), want, "preferred version")
	})
	if _, err := exec.LookPath("ctr"); err != nil {
		t.Skip("there is no ctr in PATH")
	}

	t.Run("no containerd at the address", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "none.sock")
		t.Setenv("CONTAINERD_ADDRESS", socket)
		v := imageComponent(t, proxyImage).Validate(t.Context(), proxyConfig(""))
		assert.That(t, v.Outcome == CouldNotTell && strings.HasPrefix(v.Message, cannot+fmt.Sprintf("failed to dial %q: ", socket)) &&
			strings.HasSuffix(v.Message, " (run as root; set CONTAINERD_ADDRESS if the socket is elsewhere)"), "got %s: %s", v.Outcome, v.Message)
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		checkVerdict(t, imageComponent(t, proxyImage).Validate(ctx, proxyConfig("")), CouldNotTell, 0, cannot+"context canceled")
	})
}

func realKubeletOfAnImage(t *testing.T, n *localcluster.Node) {
	assert.NoError(t, n.ImportImage(t.Context(), "evenkeel.dev/kubelet:1", "/usr/bin/kubelet", realKubelet(t)))
	c := assert.Value(NewImage("kubelet", "evenkeel.dev/kubelet:1", filepath.Join(t.TempDir(), "scratch"), slogDiscard()))(t)
	header := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	checkVerdict(t, c.Validate(t.Context(), []byte(header+"failCgroupV1: false\nmaxPods: 50\n")), Accepted, 1, "")
	assert.Equal(t, c.Validate(t.Context(), []byte(header+"maxPods: -1\n")).Outcome, Rejected)
	for reference, want := range map[string]string{
		"evenkeel.dev/hangs:1":  "there is no kubelet in /usr/bin, /usr/local/bin or / of the image evenkeel.dev/hangs:1",
		"evenkeel.dev/absent:1": "image evenkeel.dev/absent:1 is not in containerd's namespace k8s.io: pull it with ctr",
	} {
		assert.ErrorHas(t, assert.Err(NewImage("kubelet", reference, scratchDir(t), slogDiscard())), want)
	}

	mustHaveNoContainers(t)
}

// All tests with a containerd share one node, because its start and the import
// of images take long.
func TestComponentsRunFromImages(t *testing.T) {
	n, tools := sharedNode(t), filepath.Dir(realKubelet(t))
	t.Setenv("CONTAINERD_ADDRESS", strings.TrimPrefix(n.RuntimeEndpoint(), "unix://"))
	t.Setenv("CONTAINERD_SNAPSHOTTER", "overlayfs")
	t.Setenv("CONTAINERD_NAMESPACE", "")
	assert.NoError(t, n.ImportImage(t.Context(), "evenkeel.dev/hangs:1", proxyInImage, filepath.Join(tools, "localcluster-sleep")))
	t.Run("the real kubelet of an image validates a configuration", func(t *testing.T) { realKubeletOfAnImage(t, n) })
	t.Run("the real kube-proxy of an image validates a configuration", func(t *testing.T) { realKubeProxyOfAnImage(t, n) })
	t.Run("a dry run in an image ends with its context", dryRunInAnImageEnds)
	t.Run("resources of a killed ctr are removed", resourcesOfAKilledCtr)
	t.Run("containers of killed processes are removed later", containersOfKilledProcesses) // leaves some
}

func realKubeProxyOfAnImage(t *testing.T, n *localcluster.Node) {
	const none = "image " + proxyImage + " is not in containerd's namespace k8s.io: pull it with ctr -n k8s.io images pull " + proxyImage
	c := imageComponent(t, proxyImage)
	checkVerdict(t, c.Validate(t.Context(), proxyConfig("")), CouldNotTell, 0, none)
	assert.Error(t, assert.Err(c.Version(t.Context())), none, "version")
	assert.NoError(t, n.ImportImage(t.Context(), proxyImage, proxyInImage, filepath.Join(filepath.Dir(realKubelet(t)), "kube-proxy")))
	c = imageComponent(t, proxyImage)
	v := c.Validate(t.Context(), proxyConfig("mode: nftables\nclientConnection: {kubeconfig: /not/there}\n"))
	checkVerdict(t, v, Accepted, 1, "")
	mustNotWarn(t, v)
	assert.That(t, v.Effective["mode"] == "nftables" && v.Effective["healthzBindAddress"] == "0.0.0.0:10256", "it means %v", v.Effective)
	checkVerdict(t, c.Validate(t.Context(), proxyConfig("bogus: 1\n")), Rejected, 1, `strict decoding error: unknown field "bogus"`)
	assert.Returns(t, "v1.37.2", "version")(c.Version(t.Context()))
	assert.Returns(t, "kubeproxy.config.k8s.io/v1alpha1", "preferred version")(c.PreferredVersion(t.Context()))
	id, err := c.(*binary).runner.identify(t.Context())
	listed := assert.Value(ctr("images", "ls"))(t)
	assert.That(t, err == nil && strings.HasPrefix(id.Path, "sha256:") && strings.Contains(listed, id.Path),
		"got %v, %v of %s", id, err, listed)
	t.Run("in another namespace", func(t *testing.T) {
		t.Setenv("CONTAINERD_NAMESPACE", "elsewhere")
		checkVerdict(t, imageComponent(t, proxyImage).Validate(t.Context(), proxyConfig("")), CouldNotTell, 0,
			"image "+proxyImage+" is not in containerd's namespace elsewhere: pull it with ctr -n elsewhere images pull "+proxyImage)
	})
	// There is no kube-proxy in this image.
	v = imageComponent(t, localcluster.SleepImage).Validate(t.Context(), proxyConfig(""))
	const want = "the dry run does not work with this kube-proxy: the dry run of the kube-proxy: containerd did not run the image " + localcluster.SleepImage + ": "
	assert.That(t, v.Outcome == CouldNotTell && strings.HasPrefix(v.Message, want) && strings.Contains(v.Message, proxyInImage),
		"got %s: %s", v.Outcome, v.Message)
	mustHaveNoContainers(t)
}

// The program sleeps until it is killed.
func dryRunInAnImageEnds(t *testing.T) {
	c := imageComponent(t, "evenkeel.dev/hangs:1")
	t.Run("while it runs", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var spec string
		go func() {
			defer cancel()
			for tasks := ""; ctx.Err() == nil && !strings.Contains(tasks, "RUNNING"); {
				tasks, _ = ctr("tasks", "ls")
			}

			container, _ := ctr("containers", "ls", "-q")
			spec, _ = ctr("containers", "info", container)
		}()
		checkVerdict(t, c.Validate(ctx, proxyConfig("")), CouldNotTell, 0,
			"the dry run does not work with this kube-proxy: the dry run of the kube-proxy: context canceled")
		mustHaveNoContainers(t)
		mustBeConfined(t, spec)
	})
	// Cancel also while there is no container or no task yet, or none anymore.
	for after := time.Duration(0); after < 300*time.Millisecond; after += 30 * time.Millisecond {
		t.Run(fmt.Sprint("after ", after), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			v := c.Validate(ctx, proxyConfig(""))
			assert.That(t, v.Outcome == CouldNotTell, "got %s: %s", v.Outcome, v.Message)
			mustHaveNoContainers(t)
		})
	}

	r := c.(*binary).runner
	id, err := r.identify(t.Context())
	assert.NoError(t, err)
	end := r.run(t.Context(), id, process{deadline: 700 * time.Millisecond}, &outputReader{})
	assert.That(t, end.err != nil && end.err.Error() == "it did not exit within 700ms and was killed", "got %+v", end)
	mustHaveNoContainers(t)
	t.Run("killed by somebody", func(t *testing.T) {
		go func() {
			for t.Context().Err() == nil {
				tasks, _ := ctr("tasks", "ls", "-q")
				for container := range strings.FieldsSeq(tasks) {
					_, _ = ctr("tasks", "kill", "--signal=SIGKILL", container)
				}
			}
		}()
		checkVerdict(t, c.Validate(t.Context(), proxyConfig("")), CouldNotTell, 0,
			"the dry run does not work with this kube-proxy: the dry run of the kube-proxy: it died: signal: killed")
		mustHaveNoContainers(t)
	})
}

// mustBeConfined checks the restrictions of a container as containerd reports
// them.
func mustBeConfined(t *testing.T, info string) {
	t.Helper()
	var c struct {
		Spec struct {
			Process struct {
				NoNewPrivileges bool
				Capabilities    map[string][]string
			}
			Root   struct{ Readonly bool }
			Mounts []struct{ Type, Source, Destination string }
			Linux  struct {
				Namespaces []struct{ Type, Path string }
			}
		}
	}
	assert.NoError(t, json.Unmarshal([]byte(info), &c), "in", info)
	var namespaces, mounts []string
	for _, n := range c.Spec.Linux.Namespaces {
		namespaces = append(namespaces, n.Type+n.Path)
	}

	for _, m := range c.Spec.Mounts {
		if strings.HasPrefix(m.Source, "/") {
			mounts = append(mounts, filepath.Dir(m.Source)+" at "+filepath.Dir(m.Destination))
		}
	}

	may := fmt.Sprint(c.Spec.Process.Capabilities)
	assert.That(t, c.Spec.Root.Readonly && c.Spec.Process.NoNewPrivileges && !strings.Contains(may, "ADMIN") && !strings.Contains(may, "SYS_MODULE"), "a container may do too much: %s", info)
	for _, own := range []string{"ipc", "mount", "network", "pid"} {
		assert.That(t, slices.Contains(namespaces, own), "namespaces of its own are %q, without %s", namespaces, own)
	}

	assert.That(t, len(mounts) == 1 && strings.HasSuffix(mounts[0], "/scratch at /"), "what it sees of the host is %q", mounts)
}

// fakeCtr puts a fake ctr into PATH, a shell script that gets the command as
// its first argument.
func fakeCtr(t *testing.T, body string) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ctr"), "#!/bin/sh\nshift\n"+body+"\n", 0o755)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func resourcesOfAKilledCtr(t *testing.T) {
	real := assert.Value(exec.LookPath("ctr"))(t)
	t.Run("killed", func(t *testing.T) {
		fakeCtr(t, `case "$1" in
run) `+real+` "$@" & until `+real+` tasks ls | grep -q RUNNING; do :; done; kill -9 $! $$;;
esac
exec `+real+` "$@"`)
		checkVerdict(t, imageComponent(t, "evenkeel.dev/hangs:1").Validate(t.Context(), proxyConfig("")), CouldNotTell, 0,
			"the dry run does not work with this kube-proxy: the dry run of the kube-proxy: it died: signal: killed")
	})
	mustHaveNoContainers(t)
}

func TestFailedCleanupIsLogged(t *testing.T) {
	fakeCtr(t, `case "$1 $2" in
"images ls") echo `+proxyImage+` x sha256:1;;
run*) kill -9 $$;;
"containers rm") echo "ctr: no luck" >&2; exit 1;;
"containers ls") exit 1;;
esac`)
	var log bytes.Buffer
	c, err := NewImage("kube-proxy", proxyImage, filepath.Join(t.TempDir(), "scratch"), slog.New(slog.NewTextHandler(&log, nil)))
	assert.NoError(t, err)
	checkVerdict(t, c.Validate(t.Context(), proxyConfig("")), CouldNotTell, 0,
		"the dry run does not work with this kube-proxy: the dry run of the kube-proxy: it died: signal: killed")
	said := log.String()
	assert.That(t, strings.Contains(said, `msg="could not remove the container of a dry run" container=`+containerPrefix) &&
		strings.Contains(said, `err="no luck"`), "the log has %s", said)
}

func TestErrorsOfContainerdAreReported(t *testing.T) {
	for body, want := range map[string]string{
		`echo "ctr: no luck" >&2; exit 1`: "no luck",
		`exit 3`:                          "exit status 3",
		`kill -9 $$`:                      "signal: killed",
	} {
		fakeCtr(t, body)
		checkVerdict(t, imageComponent(t, proxyImage).Validate(t.Context(), proxyConfig("")), CouldNotTell, 0,
			"cannot look up the image "+proxyImage+" in containerd: "+want)
	}
}

func TestAProcessThatCannotBeStoppedIsKilled(t *testing.T) {
	asked := 0
	end := execute(t.Context(), process{
		path: "/bin/sleep", args: []string{"600"}, deadline: 10 * time.Millisecond,
		stop: func(running func() bool) error {
			if running() {
				asked++
			}

			return errors.New("no luck")
		},
	}, &outputReader{})
	assert.That(t, end.err != nil && end.err.Error() == "it did not exit within 10ms and was killed" && asked == 1, "got %+v, asked %d times", end, asked)
}

func containersOfKilledProcesses(t *testing.T) {
	old := containerPrefix + strconv.FormatInt(time.Now().Add(-2*time.Hour).Unix(), 10) + "-0"
	young := containerPrefix + strconv.FormatInt(time.Now().Unix(), 10) + "-0"
	for _, container := range []string{old, young, "somebodys"} {
		assert.NoError(t, assert.Err(ctr("containers", "create", proxyImage, container)))
	}

	checkVerdict(t, imageComponent(t, proxyImage).Validate(t.Context(), proxyConfig("")), Accepted, 1, "")
	assert.Returns(t, young+"\nsomebodys", "containers")(ctr("containers", "ls", "-q"))
	snapshots := assert.Value(ctr("snapshots", "ls"))(t)
	assert.That(t, !strings.Contains(snapshots, old) && strings.Contains(snapshots, young), "snapshots are %s", snapshots)
}

func TestKillDoesNothingAfterTheCtrExited(t *testing.T) {
	fakeCtr(t, "exit 1")
	runs := 3
	running := func() bool { runs--; return runs >= 0 }
	err := (&image{}).kill("x", running)
	assert.That(t, err == nil && runs == -1, "got %v, %d", err, runs)
}

func TestAnImageThatCannotWriteTemporaryFilesGivesNoVerdict(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "", 0o600)
	i := &image{reference: proxyImage, scratch: filepath.Join(file, "scratch"), log: slog.New(slog.DiscardHandler)}
	end := i.run(t.Context(), Identity{}, process{}, &outputReader{})
	assert.That(t, end.err != nil && end.err.Error() == "no scratch directory: mkdir "+file+": not a directory", "got %+v", end)
}
