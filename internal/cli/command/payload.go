package command

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// ReadFile returns at most limit bytes of a file, or of standard input if file is "-", and the name of the file for messages.
func (e *Env) ReadFile(ctx context.Context, file string, limit int64) (data []byte, name string, err error) {
	in, name := e.In, file
	if file == "-" {
		name = "standard input"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return nil, name, fmt.Errorf("read the configuration: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err = Interruptible(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(in, limit)) })
	if err != nil {
		return nil, name, fmt.Errorf("read the configuration from %s: %w", name, err)
	}
	return data, name, nil
}

// UnknownFields returns a note for each field that no known kubelet version has. A newer kubelet may have it.
func UnknownFields(fields map[string]any) []string {
	known := map[string]string{"apiversion": "apiVersion", "kind": "kind"} // by lower case
	for _, f := range payload.Fields {
		top, _, _ := strings.Cut(f.Path, ".")
		known[strings.ToLower(top)] = top
	}
	var notes []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		similar := known[strings.ToLower(name)]
		if similar == name {
			continue
		}
		hint := ""
		if similar != "" {
			hint = " (did you mean " + similar + "?)"
		}
		notes = append(notes, fmt.Sprintf("note: unknown field %q of KubeletConfiguration%s: a kubelet without this field rejects the configuration, on the first node", printable.Line(name), hint))
	}
	return notes
}
