package componentconfig

// Document is one of a file.
type Document struct {
	Text           []byte // as it was written, without the line that separates it from others
	APIVersion     string
	Group, Version string
	Kind           string
	Place          string // "FILE" or, of several, "FILE, document 2": for messages
}

// Documents returns the documents of a file of YAML or JSON; empty ones are left out. The error names the document that
// cannot be read.
func Documents(file string, data []byte) ([]Document, error) {
	panic("TODO")
}

// Given is what a user gave with --config.
type Given struct {
	File     string
	Cluster  *ClusterConfiguration // nil: none
	Endpoint string                // of an InitConfiguration, host:port; "" if there is none
	Configs  map[string]Document   // component configurations by the component's name
	Notes    []string              // what was passed over
}

// ParseFile reads a file that holds a ClusterConfiguration, component configurations, or both. The error names the
// document that is wrong: one that cannot be read, of an unknown kind, or a second of its kind.
func ParseFile(file string, data []byte) (*Given, error) {
	panic("TODO")
}
