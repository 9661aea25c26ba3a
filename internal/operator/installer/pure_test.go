// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestDecisionsKnowNoClient(t *testing.T) {
	may := []string{"cmp", "fmt", "slices", "strings", "time", "k8s.io/api/apps/v1", "k8s.io/api/core/v1",
		"github.com/evenkeel/evenkeel/api/v1alpha1", "github.com/evenkeel/evenkeel/internal/fleet", "github.com/evenkeel/evenkeel/internal/operator/describe", "github.com/evenkeel/evenkeel/internal/printable"}
	for _, name := range []string{"types.go", "judge.go", "decide.go"} {
		file := assert.Value(parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly))(t)
		for _, i := range file.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			assert.That(t, slices.Contains(may, path), "%s imports %s: what decides does no I/O", name, path)
		}
	}
}
