package localcluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAnImageIsMadeOfAProgramThatIsThere(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	for _, tt := range []struct{ dir, want string }{
		{dir, "import image evenkeel.dev/x:1: open " + program + ": no such file or directory"},
		{dir + "/none", "import image evenkeel.dev/x:1: open " + dir + "/none/program.tar: no such file or directory"},
		{dir, "import image evenkeel.dev/x:1: ctr images import --snapshotter=overlayfs " + dir + "/program.tar: exit status 1"},
	} {
		n := &Node{dir: tt.dir, programs: programs{ctr: "/bin/false"}}
		err := n.ImportImage(t.Context(), "evenkeel.dev/x:1", "/x", program)
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
		if err := os.WriteFile(program, []byte("x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}
