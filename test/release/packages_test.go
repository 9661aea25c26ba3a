// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// manager is a package manager that works on a machine of its own: a directory,
// which scripts take for the root.
type manager struct {
	t    *testing.T
	name string // dpkg or rpm
	root string
}

// newManager makes a machine that has a shell, and nothing else.
func newManager(t *testing.T, name string) *manager {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can install a package")
	}
	if _, err := exec.LookPath(name); err != nil {
		t.Skip(err)
	}

	m := &manager{t, name, t.TempDir()}
	says(t, "bash", "-ec", `cd "$0"; mkdir -p bin etc tmp var/lib/dpkg/info var/lib/dpkg/updates var/lib/rpm; touch var/lib/dpkg/status
for program in /bin/sh /bin/rm; do
	cp "$(readlink -f $program)" bin/${program##*/}
	for library in $(ldd $program | grep -o '/[^ ]*'); do mkdir -p ".${library%/*}"; cp -L $library ".$library"; done
done`, m.root)
	says(t, "chroot", m.root, "/bin/sh", "-c", ":")

	return m
}

// of returns a package's file in the release.
func (m *manager) of(name string) string {
	m.t.Helper()
	file := fmt.Sprintf("%s_9.8.7~rc.1_%s.deb", name, runtime.GOARCH)
	if m.name == "rpm" {
		arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
		file = fmt.Sprintf("%s-9.8.7~rc.1-1.%s.rpm", name, arch)
	}

	return filepath.Join(made, file)
}

// does installs, replaces or removes a package, and returns what was said.
func (m *manager) does(what, name string) (string, error) {
	args := map[string][]string{
		"dpkg install": {"--root=" + m.root, "--force-bad-path", "-i", m.of(name)},
		"dpkg replace": {"--root=" + m.root, "--force-bad-path", "-i", m.of(name)},
		"dpkg remove":  {"--root=" + m.root, "--force-bad-path", "-r", name},
		"rpm install":  {"--root=" + m.root, "--nodeps", "-i", m.of(name)},
		"rpm replace":  {"--root=" + m.root, "--nodeps", "-U", "--replacepkgs", m.of(name)},
		"rpm remove":   {"--root=" + m.root, "--nodeps", "-e", name},
	}[m.name+" "+what]
	said, err := exec.Command(m.name, args...).CombinedOutput()

	return string(said), err
}

// must does, and wants it to succeed and to say something.
func (m *manager) must(what, name string, words ...string) string {
	m.t.Helper()
	said, err := m.does(what, name)
	assert.Must(m.t, err == nil, "%s %s %s: %v: %s", m.name, what, name, err, said)
	for _, w := range words {
		assert.That(m.t, strings.Contains(said, w), "%s %s %s does not say %q: %s", m.name, what, name, w, said)
	}

	return said
}

// refuses wants that the agent's package cannot be removed, and says why.
func (m *manager) refuses(words ...string) {
	m.t.Helper()
	said, err := m.does("remove", "evenkeel-agent")
	assert.That(m.t, err != nil && m.has("/usr/bin/evenkeel-agent"), "it is removed: %v: %s", err, said)
	for _, w := range words {
		assert.That(m.t, strings.Contains(said, w), "it does not say %q: %s", w, said)
	}
}

func (m *manager) has(path string) bool {
	m.t.Helper()
	_, err := os.Lstat(filepath.Join(m.root, path))
	assert.Must(m.t, err == nil || errors.Is(err, fs.ErrNotExist), "%v", err)
	return err == nil
}

// agent is put where the package has the agent. It notes what it is asked for,
// and answers.
func (m *manager) agent(answer string) {
	m.t.Helper()
	m.writes("/usr/bin/evenkeel-agent", "#!/bin/sh\necho \"$@\" >>/asked\n"+answer+"\n", 0o755)
}

func (m *manager) writes(path, text string, mode os.FileMode) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	assert.NoError(m.t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.RemoveAll(path), os.WriteFile(path, []byte(text), mode)))
}

// asked returns what the agent was asked for since the last time.
func (m *manager) asked() string {
	m.t.Helper()
	path := filepath.Join(m.root, "asked")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}

	assert.NoError(m.t, errors.Join(err, os.Remove(path)))

	return string(text)
}

const (
	// ours starts the package's agent, and theirs one that the cluster has
	// brought.
	ours   = "[Service]\nExecStart=\nExecStart=-/usr/bin/evenkeel-agent --listen= -- /usr/bin/kubelet\n"
	theirs = "[Service]\nExecStart=\nExecStart=/var/lib/evenkeel-bin/evenkeel-agent-0123456789ab -- /usr/bin/kubelet\n"

	dropIn   = "/etc/systemd/system/kubelet.service.d/90-evenkeel.conf"
	takeAway = "rm /etc/systemd/system/*.d/90-evenkeel.conf"
)

func TestThePackageOfARunningAgentCannotBeRemoved(t *testing.T) {
	for _, name := range []string{"dpkg", "rpm"} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, name)
			m.must("install", "evenkeel-agent", "this node was not changed. To run its kubelet under the agent, run: evenkeel-agent install\n")
			said := says(t, "chroot", m.root, "/usr/bin/evenkeel-agent", "version")
			assert.That(t, strings.HasPrefix(said, "evenkeel-agent "+version+"\n"), "what was installed says %s", said)
			assert.That(t, m.has("/usr/share/doc/evenkeel-agent/copyright") && m.has("/usr/share/doc/evenkeel-agent/install.md"),
				"it comes without its documents")
			// No kubelet is run by an agent: there is nothing to tell, and
			// nobody to ask.
			said = m.must("replace", "evenkeel-agent")
			assert.That(t, !strings.Contains(said, "previous agent") && !strings.Contains(said, "evenkeel-agent install"),
				"a package that nobody uses says %s", said)
			m.writes(dropIn, ours, 0o644)
			m.agent("exit 0")
			m.must("replace", "evenkeel-agent", "kubelet.service still runs the previous agent.", "\n  systemctl restart kubelet.service\n")
			assert.Equal(t, m.asked(), "", "an upgrade asked the agent")
			assert.That(t, m.has(dropIn), "an upgrade removed the drop-in")
			for answer, why := range map[string]string{
				"echo no D-Bus >&2; exit 2": "no D-Bus\n", "exit 0 # and has taken nothing away": "evenkeel-agent: uninstalling the agent from kubelet.service\n",
			} {
				m.agent(answer)
				m.refuses(why, "kubelet.service still starts the agent, so the package stays.", "\n  evenkeel-agent uninstall --unit=kubelet.service\n")
				assert.Equal(t, m.asked(), "uninstall --unit=kubelet.service\n", "the agent was asked")
				assert.That(t, m.has(dropIn), "with an agent that says %q, the drop-in is gone", answer)
				m.must("replace", "evenkeel-agent") // it is there as before
			}

			m.writes("/etc/systemd/system/k3s agent.service.d/90-evenkeel.conf", ours, 0o644)
			m.agent(`rm "/etc/systemd/system/${2#--unit=}.d/90-evenkeel.conf"`)
			m.must("remove", "evenkeel-agent", "uninstalling the agent from kubelet.service", "uninstalling the agent from k3s agent.service")
			assert.Equal(t, m.asked(), "uninstall --unit=k3s agent.service\nuninstall --unit=kubelet.service\n", "the agent was asked")
			assert.That(t, !m.has("/usr/bin/evenkeel-agent") && !m.has(dropIn) && !m.has("/usr/share/doc/evenkeel-agent"), "something of it is left")

			m.must("install", "evenkeel-agent")
			m.writes("/run/systemd/system/kubelet.service.d/90-evenkeel.trial.conf", ours, 0o644)
			m.agent("echo another install is at work >&2; exit 1")
			m.refuses("kubelet.service still starts the agent, so the package stays.")
			m.agent("rm /run/systemd/system/kubelet.service.d/90-evenkeel.trial.conf")
			m.must("remove", "evenkeel-agent", "uninstalling the agent from kubelet.service")

			m.must("install", "evenkeel-agent")
			m.must("remove", "evenkeel-agent") // that nobody uses
		})
	}
}

func TestThePackageIgnoresOtherAgentsAndStaysIfAUnitStartsItsOwn(t *testing.T) {
	for _, name := range []string{"dpkg", "rpm"} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, name)
			m.must("install", "evenkeel-agent")
			m.writes(dropIn, theirs, 0o644)
			m.agent("exit 2")
			said := m.must("replace", "evenkeel-agent")
			assert.That(t, !strings.Contains(said, "still runs"), "of another's agent it says %s", said)
			m.agent("exit 2")
			m.writes("/etc/systemd/system/mine.service", ours, 0o644)
			m.refuses("evenkeel-agent: /etc/systemd/system/mine.service starts the agent, so the package stays.")
			m.writes("/etc/systemd/system/mine.service", theirs, 0o644)
			m.must("remove", "evenkeel-agent")
			assert.Equal(t, m.asked(), "", "the agent was asked")
			assert.That(t, m.has(dropIn), "the drop-in of another's agent is gone")
		})
	}
}

func TestThePluginsPackageHasItsCompletions(t *testing.T) {
	for name, zsh := range map[string]string{"dpkg": "vendor-completions", "rpm": "site-functions"} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, name)
			m.must("install", "kubectl-evenkeel")
			said := says(t, "chroot", m.root, "/usr/bin/kubectl-evenkeel", "version", "--client")
			assert.That(t, strings.HasPrefix(said, "kubectl-evenkeel "+version+"\n"), "what was installed says %s", said)
			said = says(t, "chroot", m.root, "/bin/sh", "-c", "PATH=/usr/bin kubectl_complete-evenkeel rollout und")
			assert.That(t, strings.HasPrefix(said, "undo\t"), "kubectl is offered %q", said)
			for path, want := range map[string]string{
				"/usr/share/bash-completion/completions/kubectl-evenkeel":    "__start_kubectl-evenkeel",
				"/usr/share/fish/vendor_completions.d/kubectl-evenkeel.fish": "complete -c kubectl-evenkeel",
				"/usr/share/zsh/" + zsh + "/_kubectl-evenkeel":               "#compdef kubectl-evenkeel",
				"/usr/share/doc/kubectl-evenkeel/copyright":                  "Apache-2.0",
			} {
				text, err := os.ReadFile(filepath.Join(m.root, path))
				assert.That(t, err == nil && strings.Contains(string(text), want), "%s has no %q (%v)", path, want, err)
			}

			m.must("remove", "kubectl-evenkeel")
			assert.That(t, !m.has("/usr/bin/kubectl-evenkeel") && !m.has("/usr/bin/kubectl_complete-evenkeel"), "something of it is left")
		})
	}
}

func TestPackagesHaveTheirMetadata(t *testing.T) {
	for _, tt := range []struct {
		program string
		args    []string
		want    []string
	}{
		{"dpkg-deb", []string{"--field", (&manager{t: t, name: "dpkg"}).of("evenkeel-agent")}, []string{
			"Package: evenkeel-agent\n", "Version: 9.8.7~rc.1\n", "Architecture: " + runtime.GOARCH + "\n", "Description: Live, safe configuration",
			"Maintainer: The evenkeel authors", "Homepage: https://",
		}},
		{"rpm", []string{"-qip", (&manager{t: t, name: "rpm"}).of("evenkeel-agent")}, []string{
			"Name        : evenkeel-agent\n", "Version     : 9.8.7~rc.1\n", "License     : Apache-2.0\n", "Build Date  : Tue Nov 14 22:13:20 2023\n", "Build Host  : evenkeel.dev\n",
		}},
		{"dpkg-deb", []string{"--contents", (&manager{t: t, name: "dpkg"}).of("evenkeel-agent")}, []string{
			"-rwxr-xr-x root/root ", " 2023-11-14 22:13 ./usr/bin/evenkeel-agent\n", "-rw-r--r-- root/root ", " ./usr/share/doc/evenkeel-agent/copyright\n",
		}},
	} {
		if _, err := exec.LookPath(tt.program); err != nil {
			t.Log("skipped: ", err)
			continue
		}

		cmd := exec.Command(tt.program, tt.args...)
		cmd.Env = append(os.Environ(), "TZ=UTC", "LC_ALL=C")
		said, err := cmd.CombinedOutput()
		assert.Must(t, err == nil, "%v: %s", err, said)
		for _, want := range tt.want {
			assert.That(t, strings.Contains(string(said), want), "%s %s: there is no %q in:\n%s", tt.program, tt.args[0], want, said)
		}
	}
}
