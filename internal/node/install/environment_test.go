package install

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestUnitFilesAreReadWithoutWaiting(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("kubelet.service"), []byte("ExecStart=/opt/agent"), 0o600), os.Symlink("/dev/null", at("masked.service"))); err != nil {
		t.Fatal(err)
	}
	names, err := ReferencedPrograms([]string{dir}, at("state"))
	if err != nil || !names("/opt/agent") || names("/opt/other") {
		t.Errorf("the programs of a unit beside a masked one: %v", err)
	}
	if _, err := environment(nil, []EnvironmentFile{{Path: at("masked.service")}}); err != nil {
		t.Errorf("an environment file that is a link to /dev/null: %v", err)
	}
	if err := syscall.Mkfifo(at("pipe.service"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReferencedPrograms([]string{dir}, at("state")); err == nil || !strings.Contains(err.Error(), "pipe.service is not a regular file") {
		t.Errorf("the programs of a unit that is a pipe: %v", err)
	}
	if _, err := environment(nil, []EnvironmentFile{{Path: at("pipe.service")}}); err == nil || !strings.Contains(err.Error(), "pipe.service is not a regular file") {
		t.Errorf("the variables of an environment file that is a pipe: %v", err)
	}
}
