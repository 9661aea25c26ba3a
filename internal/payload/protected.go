package payload

// Protection says which fields a payload may not make different from the node's local configuration.
type Protection struct{}

// Violation is a protected field that would change.
type Violation struct{ Field, Value, Local string }

func (v Violation) String() string { return v.Field }

// Empty tells whether nothing is protected.
func (p Protection) Empty() bool { return true }

// Violations compares.
func (p Protection) Violations(effective, local map[string]any, hidden []string) []Violation {
	return nil
}

// Diff compares.
func Diff(effective, local map[string]any) []Violation { return nil }
