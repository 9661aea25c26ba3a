package install

import (
	"os"
	"path/filepath"
	"testing"
)

func TestJournal(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	unit := Unit{Name: "kubelet.service"}
	if got := Journal(t.Context(), unit); got != "" {
		t.Errorf("without journalctl: %q", got)
	}
	script := "#!/bin/sh\necho \"$*\"\necho last words\necho\n"
	if err := os.WriteFile(filepath.Join(dir, "journalctl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, want := Journal(t.Context(), unit), "--unit=kubelet.service --boot --lines=20 --no-pager --output=cat --quiet\nlast words"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
