package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/evenkeel/evenkeel/internal/install"
)

func TestInstallAndUninstallRefuseWrongUsageBeforeTheyLookAtTheNode(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"install", "kubelet"}, `install takes no arguments, got "kubelet" (flags of the agent go after --)`},
		{[]string{"install", "kubelet", "--", "--listen="}, `install takes no arguments, got "kubelet" (flags of the agent go after --)`},
		{[]string{"install", "--timeout=0s"}, "--timeout must be more than nothing, is 0s"},
		{[]string{"install", "--", "--no-such-flag"}, "flags of the agent: unknown flag: --no-such-flag"},
		{[]string{"install", "--", "--listen=", "/usr/bin/kubelet"}, `flags of the agent: "/usr/bin/kubelet" is none`},
		{[]string{"install", "--", "--lock-file=/run/lock/x"}, "flags of the agent: --lock-file and --bootstrap are for the unit of a self-hosted kubelet's node"},
		{[]string{"install", "--", "--dynamic-config-dir=relative"}, `--dynamic-config-dir must be an absolute path, not "relative"`},
		{[]string{"install", "--", "--protected-fields=+nothing.such"}, "--protected-fields: "},
		{[]string{"install", "--force"}, "unknown flag: --force; see evenkeel-agent install --help"},
		{[]string{"uninstall", "kubelet"}, "evenkeel-agent uninstall takes no arguments"},
		{[]string{"uninstall", "--timeout=-1s"}, "--timeout must be more than nothing, is -1s"},
	} {
		_, err := runs(t, c.args...)
		wantUsage(t, err, c.want)
	}
}

func TestTheAgentRemembersUnlessItIsToldWhere(t *testing.T) {
	for _, c := range []struct{ flags, want string }{
		{"", "--dynamic-config-dir=/var/lib/evenkeel"},
		{"--dynamic-config-dir=/d", "--dynamic-config-dir=/d"},
		{"--dynamic-config-dir", "--dynamic-config-dir"},
	} {
		var flags []string
		if c.flags != "" {
			flags = []string{c.flags}
		}
		if got := withMemory(flags); len(got) != 1 || got[0] != c.want {
			t.Errorf("%q becomes %q, want %q", flags, got, c.want)
		}
	}
}

func TestACommandLineThatTheAgentWouldNotTakeIsNoWrongUsageOfInstall(t *testing.T) {
	kubelet := filepath.Join(t.TempDir(), "kubelet")
	for _, c := range []struct {
		argv []string
		want string
	}{
		{[]string{kubelet, "stray"}, `kubelet command line: the kubelet takes flags only, but "stray" is none`},
		{[]string{kubelet, "--exit-on-lock-contention", "--lock-file=/run/x"}, "the kubelet has --exit-on-lock-contention: it gives its node away to who asks, and install is for a kubelet that stays"},
		{[]string{kubelet, "--exit-on-lock-contention"}, "the kubelet's --exit-on-lock-contention needs a --lock-file, as it does without an agent"},
		{[]string{kubelet}, "there is no kubelet at " + kubelet + ": file does not exist"},
	} {
		_, err := checkAgent(t.Context(), []string{"--listen="}, c.argv)
		if coded := (*exit)(nil); err == nil || err.Error() != c.want || errors.As(err, &coded) {
			t.Errorf("%q: %v, want %s", c.argv, err, c.want)
		}
	}
}

func TestTheEndOfTheJournalIsToldIfThereIsOne(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	unit := install.Unit{Name: "kubelet.service"}
	if got := journal(t.Context(), unit); got != "" {
		t.Errorf("without journalctl: %q", got)
	}
	script := "#!/bin/sh\necho \"$*\"\necho last words\necho\n"
	if err := os.WriteFile(filepath.Join(dir, "journalctl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, want := journal(t.Context(), unit), "--unit=kubelet.service --boot --lines=20 --no-pager --output=cat --quiet\nlast words"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
