package installer

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

func TestDecisionsKnowNoClient(t *testing.T) {
	may := []string{"cmp", "fmt", "slices", "strings", "time", "github.com/evenkeel/evenkeel/api/v1alpha1", "github.com/evenkeel/evenkeel/internal/fleet/describe", "github.com/evenkeel/evenkeel/internal/printable"}
	for _, name := range []string{"types.go", "judge.go", "decide.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if path := strings.Trim(i.Path.Value, `"`); !slices.Contains(may, path) {
				t.Errorf("%s imports %s: what decides does no I/O", name, path)
			}
		}
	}
}
