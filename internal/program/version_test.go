package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func run(t *testing.T, i Info, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := i.Command()
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.Execute()
	return out.String(), err
}

func TestVersionOutput(t *testing.T) {
	i := NewInfo("evenkeel-x", "v1.2.3", "0123abcd")
	built := runtime.Version() + " for " + runtime.GOOS + "/" + runtime.GOARCH
	want := "evenkeel-x v1.2.3\ncommit    0123abcd\nbuilt     with " + built + "\nkubelets  1.33 to 1.37\n"
	if got, err := run(t, i); got != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	said, err := run(t, i, "-o", "json")
	var got Info
	if err := errors.Join(err, json.Unmarshal([]byte(said), &got)); err != nil || got != i {
		t.Errorf("as JSON it is %s, %v", said, err)
	}
	if !strings.Contains(said, `"kubelets": {`) || !strings.Contains(said, `"oldest": "1.33"`) {
		t.Errorf("as JSON it is %s", said)
	}
	for _, args := range [][]string{{"-o", "yaml"}, {"--output="}} {
		if _, err := run(t, i, args...); err == nil || !strings.Contains(err.Error(), "must be json") {
			t.Errorf("%q: got %v", args, err)
		}
	}
}

func TestTheCommitDefaultsToTheOneOfTheGoCommand(t *testing.T) {
	note := func(settings ...debug.BuildSetting) *debug.BuildInfo { return &debug.BuildInfo{Settings: settings} }
	at, dirty, clean := debug.BuildSetting{Key: "vcs.revision", Value: "42"},
		debug.BuildSetting{Key: "vcs.modified", Value: "true"}, debug.BuildSetting{Key: "vcs.modified", Value: "false"}
	for _, tt := range []struct {
		name  string
		build *debug.BuildInfo
		want  string
	}{
		{"nothing noted", nil, ""},
		{"no repository", note(), ""},
		{"as committed", note(at, clean), "42"},
		{"changed since", note(dirty, at), "42-dirty"},
		{"changed, of no commit", note(dirty), ""},
	} {
		if got := revision(tt.build); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := (Info{Program: "x", Version: "v1"}).String(); !strings.HasPrefix(got, "x v1\ncommit    unknown\n") {
		t.Errorf("without a commit it says %q", got)
	}
}
