package cli

import "github.com/evenkeel/evenkeel/internal/controller"

// contentDiff is what changes, field by field, a line each, empty if nothing does. A zero content is local.
func contentDiff(before, after controller.Content) (string, error) { return "", nil }
