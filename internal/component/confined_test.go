// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestADryRunIsConfined(t *testing.T) {
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		t.Setenv(name, "1")
	}

	network := assert.Value(os.Readlink("/proc/self/ns/net"))(t)
	read, leaked, err := os.Pipe()
	assert.NoError(t, err)
	defer read.Close()
	defer leaked.Close()
	// A descriptor that the parent forgot to close.
	assert.NoError(t, assert.Err(unix.FcntlInt(leaked.Fd(), unix.F_SETFD, 0)))
	h := dryRunner(t, fake(t, `until [ "$(ulimit -d)" != unlimited ]; do :; done
[ "$(ulimit -d)" = 1048576 ] || end "data is limited to $(ulimit -d) KiB"
[ "$(ulimit -c)" = 0 ] || end "it may write a core"
[ "$(cat /proc/self/oom_score_adj)" = 1000 ] || end "oom_score_adj is $(cat /proc/self/oom_score_adj)"
[ ! -e /proc/$$/fd/`+fmt.Sprint(leaked.Fd())+` ] || end "a descriptor was inherited"
[ $(id -u) != 0 ] || [ "$(readlink /proc/self/ns/net)" != "`+network+`" ] || end "it has the network"
[ "$NOTIFY_SOCKET$WATCHDOG_USEC$WATCHDOG_PID" = "" ] || end "it could notify systemd"
[ "$TMPDIR" = "${root%/root}/tmp" ] && [ -d "$TMPDIR" ] || end "TMPDIR is $TMPDIR"
accept`))
	checkVerdict(t, h.Check(context.Background(), Candidate{Data: []byte("{}")}, ""), Accepted, 2, "")
}

func TestStage2RunsOnlyIfStage1AcceptsAndNoProtectedFieldDiffers(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	h := dryRunner(t, fakeWithLocal(t, `echo "$stage$config" >>`+ran+`
case "$config" in *OPEN*) dump '{"MaxPods": 1, "ReadOnlyPort": 10255}';; *) dump '{"MaxPods": 1, "ReadOnlyPort": 0}';; esac
case "$stage$config" in 1BAD) end "no good";; esac; accept`, "maxPods: 1 # LOCAL"))
	h.Protected = payload.DefaultProtection()
	check := func(data string, inStage2 bool) Verdict {
		v := h.Check(context.Background(), Candidate{Data: []byte(data)}, "")
		text := assert.Value(os.ReadFile(ran))(t)
		assert.That(t, bytes.Contains(text, []byte("2"+data)) == inStage2, "%s in stage 2: %t, of\n%s", data, !inStage2, text)

		return v
	}
	checkVerdict(t, check("BAD", false), Rejected, 1, "no good")
	message, compared := check("readOnlyPort: 10255 # OPEN", false).CheckProtected(h.Protected)
	assert.Equal(t, message, "protected field readOnlyPort would be 10255, but is 0 locally")
	assert.That(t, compared, "it was not compared")
	checkVerdict(t, check("maxPods: 1 # GOOD", true), Accepted, 2, "")
}

// realKubelets returns the paths of the pinned kubelet and of all older ones
// that were built.
func realKubelets(t *testing.T) []string {
	newest := realKubelet(t)
	older, err := filepath.Glob(filepath.Join(filepath.Dir(newest), "kubelets", "v*", "kubelet"))
	assert.Must(t, err == nil && len(older) != 0, "no older kubelet is built: run make kubelets (%v)", err)
	slices.Sort(older)

	return append([]string{newest}, older...)
}

// listener counts the connections to an address.
func listener(t *testing.T, network, address string) (net.Addr, *atomic.Int32) {
	t.Helper()
	l := assert.Value(net.Listen(network, address))(t)
	t.Cleanup(func() { _ = l.Close() })
	var count atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}

			count.Add(1)
			_ = c.Close()
		}
	}()

	return l.Addr(), &count
}

// readers counts how often a FIFO is opened for reading.
func readers(t *testing.T, fifo string) *atomic.Int32 {
	t.Helper()
	assert.NoError(t, unix.Mkfifo(fifo, 0o600))
	var count atomic.Int32
	go func() {
		for ; t.Context().Err() == nil; <-time.After(time.Millisecond) { // poll interval
			if fd, err := unix.Open(fifo, unix.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
				count.Add(1)
				_ = unix.Close(fd)
			}
		}
	}()

	return &count
}

// Whether fields are protected or not, no kubelet's dry run uses the paths and
// endpoints of a hostile configuration.
func TestNoKubeletUsesPathsAndEndpointsOfAHostileConfiguration(t *testing.T) {
	endpoint := startContainerd(t)
	for i, kubelet := range realKubelets(t) {
		newest := i == 0
		for _, protected := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, protected %t", filepath.Base(filepath.Dir(kubelet)), protected), func(t *testing.T) {
				dir := t.TempDir()
				local := filepath.Join(dir, "local.yaml")
				write(t, local, string(config("containerRuntimeEndpoint: "+endpoint+"\n")), 0o600)
				k := assert.Value(ParseKubelet([]string{kubelet, "--config=" + local, "--node-ip=127.0.0.1", "--hostname-override=n1"}))(t)
				h := dryRunner(t, k)
				if protected {
					h.Protected = payload.DefaultProtection()
				}

				socket, dialed := listener(t, "unix", filepath.Join(dir, "cri.sock"))
				tracing, contacted := listener(t, "tcp", "127.0.0.1:0")
				fifo := filepath.Join(dir, "fifo")
				opened := readers(t, fifo)

				good := h.Check(context.Background(), Candidate{Data: config("maxPods: 100\ncontainerRuntimeEndpoint: " + endpoint + "\n")}, "")
				checkVerdict(t, good, Accepted, 2, "")
				empty := h.Check(context.Background(), Candidate{Data: bareConfig(""), Dropin: true}, "")
				checkVerdict(t, empty, Accepted, 2, "", "an empty drop-in")
				assert.That(t, len(empty.Limits) == 0, "the limits of an empty drop-in are %v", empty.Limits)
				for _, tt := range []struct {
					name, data string
					message    string // of the rejection without protected fields; "" if it is accepted
				}{
					{"a device", "authentication: {x509: {clientCAFile: /dev/zero}}", "authentication.x509.clientCAFile: /dev/zero is not a regular file"},
					{"a FIFO", "authentication: {x509: {clientCAFile: \"" + fifo + "\"}}", "authentication.x509.clientCAFile: " + fifo + " is not a regular file"},
					{"a FIFO, in JSON that is no YAML", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","failCgroupV1":false,"kubeletCgroups":"\ud83d\ude00","authentication":{"x509":{"clientCAFile":"` + fifo + `"}}}`, "authentication.x509.clientCAFile: " + fifo + " is not a regular file"},
					{"a file of the kernel", "authentication: {x509: {clientCAFile: /proc/kmsg}}", "authentication.x509.clientCAFile: /proc/kmsg is empty"},
					{"no certificate", "authentication: {x509: {clientCAFile: \"" + local + "\"}}", "authentication.x509.clientCAFile: " + local + " contains no certificate"},
					{"another runtime", "containerRuntimeEndpoint: unix://" + socket.String(), ""},
					{"another image service", "imageServiceEndpoint: unix://" + socket.String(), ""},
					{"somewhere to send traces", "tracing: {endpoint: \"" + tracing.String() + "\", samplingRatePerMillion: 1000000}", ""},
					{"a serving certificate", "tlsCertFile: " + fifo + "\ntlsPrivateKeyFile: " + fifo, ""},
				} {
					for _, dropin := range []bool{false, true} {
						if protected && dropin == newest { // stage 1 alone runs: one form for each kubelet
							continue
						}

						data := tt.data + "\n"
						if !strings.Contains(data, "containerRuntimeEndpoint") && !dropin {
							data += "containerRuntimeEndpoint: " + endpoint + "\n"
						}

						whole := config(data)
						if strings.HasPrefix(tt.data, "{") {
							whole = []byte(tt.data)
						}

						v := h.Check(context.Background(), Candidate{Data: whole, Dropin: dropin}, "")
						message, _ := v.CheckProtected(h.Protected)
						switch {
						case protected && (v.Outcome != Accepted || !strings.HasPrefix(message, "protected field ")):
							t.Errorf("%s, drop-in %t: %s: %s; %s", tt.name, dropin, v.Outcome, v.Message, message)
						case !protected && tt.message == "" && v.Outcome != Accepted, !protected && tt.message != "" && (v.Outcome != Rejected || v.Message != tt.message):
							t.Errorf("%s, drop-in %t: %s: %s", tt.name, dropin, v.Outcome, v.Message)
						}
					}
				}

				// The kubelet accepts other spellings in a drop-in, up to the
				// strict decoding.
				v := h.Check(context.Background(), Candidate{Data: config("Authentication: {X509: {ClientCAFile: \"" + fifo + "\"}}\n"), Dropin: true}, "")
				message, _ := v.CheckProtected(h.Protected)
				assert.That(t, v.Outcome != Accepted || message != "", "names in another case: %s at stage %d", v.Outcome, v.Stage)
				assert.Equal(t, [...]int32{dialed.Load(), contacted.Load(), opened.Load()}, [3]int32{}, "the socket was dialed, the endpoint contacted, the FIFO opened times")
			})
		}
	}
}
