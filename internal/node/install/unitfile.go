// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is a unit file or drop-in on disk.
type file struct {
	path string
	data []byte
}

// setting is one assignment in a unit file.
type setting struct {
	section, key, value string
}

// settings reads a unit file as systemd does: a line that ends in a backslash
// continues in the next one, comments between them are ignored, and so are
// lines that are not assignments in a section.
func (f file) settings() []setting {
	var out []setting
	section, continued := "", ""
	for line := range strings.SplitSeq(strings.TrimPrefix(string(f.data), "\ufeff"), "\n") {
		line = strings.TrimLeft(strings.TrimSuffix(line, "\r"), " \t")
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}

		line = continued + line
		if backslashes := len(line) - len(strings.TrimRight(line, `\`)); backslashes%2 == 1 {
			continued = line[:len(line)-1] + " "
			continue
		}

		continued = ""
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			section = line[1 : len(line)-1]
			continue
		}

		if key, value, found := strings.Cut(line, "="); found && section != "" {
			out = append(out, setting{section, strings.TrimSpace(key), strings.TrimSpace(value)})
		}
	}

	return out
}

// command is the ExecStart= of a unit, as written.
type command struct {
	prefix string // special prefix characters, such as -
	text   string // the program and its arguments, not expanded
	file   string // path of the file
}

// execStartOf returns the only command of the files of a unit, in the order of
// systemd. An empty assignment clears earlier ones.
func execStartOf(files []file) (command, error) {
	var commands []command
	for _, f := range files {
		for _, s := range f.settings() {
			switch {
			case s.section != "Service" || s.key != "ExecStart":
			case s.value == "":
				commands = nil
			default:
				text := strings.TrimLeft(s.value, prefixes)
				commands = append(commands, command{s.value[:len(s.value)-len(text)], text, f.path})
			}
		}
	}

	if len(commands) != 1 {
		return command{}, fmt.Errorf("it has %d ExecStart= commands, not one", len(commands))
	}

	return commands[0], commands[0].check()
}

// prefixes are the characters that systemd accepts before a program.
const prefixes = "-@:+!|"

// check returns an error if the command would mean something else as the
// arguments of another program.
func (c command) check() error {
	at := "ExecStart= in " + c.file
	switch {
	case c.text == "":
		return fmt.Errorf("%s has no program, only %q", at, c.prefix)
	case strings.ContainsAny(c.prefix, "@|"):
		return fmt.Errorf("%s begins with %q, which gives its program another name or a shell: write it without", at, c.prefix)
	case len(c.text) > 1 && strings.ContainsRune(`"'`, rune(c.text[0])) && strings.ContainsRune(prefixes, rune(c.text[1])):
		return fmt.Errorf("%s has a prefix within quotes: write it before them", at)
	case slices.Contains(strings.Fields(c.text), ";"):
		return fmt.Errorf("%s has more than one command", at)
	}

	return nil
}

// overriders returns the files that systemd reads after a drop-in of this name,
// and that set what our drop-in must set.
func overriders(files []file, name string) []string {
	ours := map[string]bool{"ExecStart": true, "Type": true, "NotifyAccess": true, "KillMode": true, "Restart": true}
	var out []string
	for _, f := range files {
		base := filepath.Base(f.path)
		if !strings.HasSuffix(base, ".conf") || base <= name {
			continue
		}
		if slices.ContainsFunc(f.settings(), func(s setting) bool { return s.section == "Service" && ours[s.key] }) {
			out = append(out, f.path)
		}
	}

	return out
}

// quote quotes a word so that systemd reads it unchanged. Without expansion
// (prefix :) a $ needs no escape.
func quote(word string, expands bool) (string, error) {
	if strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("%q has a control character", word)
	}

	word = strings.ReplaceAll(word, "%", "%%")
	if expands {
		word = strings.ReplaceAll(word, "$", "$$")
	}
	if word != "" && word != ";" && !strings.ContainsAny(word, " \"'\\") {
		return word, nil
	}

	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`, nil
}

// DropInName is the name of the drop-in file that install writes.
const DropInName = "90-evenkeel.conf"

// trialName is the name of a drop-in on trial. systemd reads it after
// DropInName.
const trialName = "90-evenkeel.trial.conf"

// The first line of our drop-in ends with the digest of the rest, to tell an
// edited file from one of an older evenkeel.
const marker = "# Written by `evenkeel-agent install`; `evenkeel-agent uninstall` takes it away. sha256:"

// flagsMark begins the line with the agent's flags, as JSON.
const flagsMark = "# The agent's flags: "

// fixedSettings are the settings that do not depend on the node.
//
// Nothing here restricts the kubelet. Settings with a private mount namespace
// (ProtectSystem=, PrivateTmp=, ProtectProc= and the like) would hide volumes
// from the pods; system call filters, NoNewPrivileges= and capabilities would
// also apply to the kubelet, its mount helpers and its credential plugins;
// RestrictSUIDSGID= breaks fsGroup.
const fixedSettings = `[Unit]
# systemd must never stop restarting the kubelet: a node needs it.
StartLimitIntervalSec=0

[Service]
# The unit is active when the kubelet is healthy. The agent forwards the kubelet's notifications; systemd accepts them from
# the agent only.
Type=notify
NotifyAccess=main

ExecStart=
ExecStart=%s

# Only the agent gets SIGTERM; it stops the kubelet. systemd kills the remaining processes after TimeoutStopSec.
KillMode=mixed

# The kubelet ends when its agent ends. Restart both quickly.
Restart=always
RestartSec=1

# When memory runs out, the agent and the kubelet are killed last, and the kill of a dry run stops neither.
OOMScoreAdjust=-999
OOMPolicy=continue

# Longer than --stop-grace, so that the kubelet has time to stop.
TimeoutStopSec=%d

# Enough for a trial at boot to finish: to detect that the configuration on trial does not work, to fall back, and to detect
# that the previous configuration does not work either. Each takes a dry run and --health-timeout.
TimeoutStartSec=%d

# Temporary files; on a tmpfs, so that a full disk stops neither the kubelet nor a dry run. The state directory is below;
# it is writable even if the unit protects the file system.
RuntimeDirectory=evenkeel
RuntimeDirectoryMode=0700
`

// Limits are settings of the agent that its unit must respect.
type Limits struct {
	StopGrace     time.Duration
	HealthTimeout time.Duration
	StateDir      string // the agent's state directory; empty: none
}

// render returns the drop-in with which the program agent, with these flags,
// starts the kubelet of a command.
func render(agent string, agentFlags []string, limits Limits, kubelet command) (string, error) {
	line := kubelet.prefix + agent
	expands := !strings.Contains(kubelet.prefix, ":")
	for _, f := range agentFlags {
		word, err := quote(f, expands)
		if err != nil {
			return "", fmt.Errorf("flag of the agent: %w", err)
		}

		line += " " + word
	}

	line += " -- " + kubelet.text
	flags, err := json.Marshal(agentFlags)
	if err != nil {
		return "", err
	}

	body := "# Do not edit. Put additions into your own file, such as 95-local.conf in this directory. If the kubelet's own unit\n" +
		"# changes, run `evenkeel-agent install` again: this file has a copy of the kubelet's command line from\n" +
		"# " + kubelet.file + "\n" + flagsMark + string(flags) + "\n\n" +
		fmt.Sprintf(fixedSettings, line, max(60, seconds(limits.StopGrace)+30), max(600, 5*seconds(limits.HealthTimeout)))
	if name, err := filepath.Rel("/var/lib", limits.StateDir); limits.StateDir != "" && err == nil && filepath.IsLocal(name) {
		body += "StateDirectory=" + strings.ReplaceAll(name, "%", "%%") + "\nStateDirectoryMode=0700\n"
	}

	return sign(body), nil
}

func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

func sign(body string) string {
	return fmt.Sprintf("%s%x\n%s", marker, sha256.Sum256([]byte(body)), body)
}

// origin is the author of a drop-in.
type origin int

const (
	foreign origin = iota
	edited         // ours, but changed since
	ours
)

func originOf(content string) origin {
	line, body, _ := strings.Cut(content, "\n")
	switch {
	case !strings.HasPrefix(line, marker):
		return foreign
	case sign(body) != content:
		return edited
	}

	return ours
}

// flagsOf returns the agent's flags from our drop-in.
func flagsOf(content string) ([]string, error) {
	for line := range strings.Lines(content) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), strings.TrimSpace(flagsMark)); ok {
			var flags []string
			if err := json.Unmarshal([]byte(text), &flags); err != nil {
				return nil, fmt.Errorf("the agent's flags in %s: %w", DropInName, err)
			}

			return flags, nil
		}
	}

	return nil, fmt.Errorf("no flags of the agent in %s", DropInName)
}
