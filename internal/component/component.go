package component

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// Component is a program whose own binary judges its configuration, wherever that binary runs: with no node, no flags
// and no local configuration, so that another version's binary can be asked on any host. Nothing of the host is judged;
// where the host got in the way, the verdict says so. It may be used by several goroutines.
//
// A node's own kubelet is judged by Harness, which knows its flags and goes further.
type Component interface {
	// Name is the component's, as Names has it.
	Name() string
	// Version asks the binary for its version, such as "v1.36.3".
	Version(ctx context.Context) (string, error)
	// Validate has the binary decode and validate a whole configuration. What the binary would only warn about or pass
	// over without a word (a field that it does not know, a second YAML document) is rejected. A refusal is a rejection
	// only if the binary accepts an empty configuration now. Effective is the configuration with the defaults laid under
	// it, apiVersion and kind included; its names are the API's.
	Validate(ctx context.Context, data []byte) Verdict
	// Defaults returns what an empty configuration amounts to; see Verdict.Effective. The error says why the binary
	// could not tell.
	Defaults(ctx context.Context) (Effective, error)
	// PreferredVersion returns the apiVersion that the binary itself would write a configuration in, such as
	// "kubelet.config.k8s.io/v1beta1". It is found by asking. The error says why the binary could not tell.
	PreferredVersion(ctx context.Context) (string, error)
}

// asker is what differs between components.
type asker interface {
	// ask has the binary decode and validate a configuration, of which nothing is left when it returns. The answer is
	// CouldNotTell where the binary cannot be asked at all. unjudged says what this host kept from being judged.
	ask(ctx context.Context, data []byte) (a answer, unjudged string)
	// prove makes sure that this binary ends where its dry run should, and returns the apiVersion that it prefers. Both
	// hold until the binary is replaced.
	prove(ctx context.Context) (preferred string, err error)
}

// components is all that there is. A new one is a line here, and an asker in a file of its own.
var components = map[string]func(path, scratchDir string, log *slog.Logger) *binary{
	"kubelet":    newBareKubelet,
	"kube-proxy": newKubeProxy,
}

// Names returns the names of all components, sorted.
func Names() []string { return slices.Sorted(maps.Keys(components)) }

// New returns the component of a name, whose binary is at path (or of that name in PATH). It puts its throw-away files
// into scratchDir, which it makes. The error names what is wrong: no component of that name, or no program at path.
func New(name, path, scratchDir string, log *slog.Logger) (Component, error) {
	component, ok := components[name]
	if !ok {
		return nil, unknown(name)
	}
	if _, err := identify(name, path); err != nil {
		return nil, err
	}
	scratchDir, err := filepath.Abs(scratchDir) // the binary's words name it
	if err != nil {
		return nil, fmt.Errorf("scratch directory: %w", err)
	}
	return component(path, scratchDir, log), nil
}

func unknown(name string) error {
	return fmt.Errorf("there is no component %q; there are %s", name, strings.Join(Names(), ", "))
}

// binary is a component's program, and what it calls its configuration.
type binary struct {
	name, kind string
	runner     runner
	asker
}

func (b *binary) Name() string { return b.name }

func (b *binary) Version(ctx context.Context) (string, error) {
	return askVersion(ctx, b.name, b.runner)
}

func (b *binary) PreferredVersion(ctx context.Context) (string, error) {
	version, err := b.prove(ctx)
	if err != nil {
		return "", fmt.Errorf("no preferred version of the %s's configuration: %w", b.name, err)
	}
	return version, nil
}

func (b *binary) Validate(ctx context.Context, data []byte) Verdict {
	if words := b.neverShown(data); words != "" {
		return Verdict{Outcome: Rejected, Words: words}
	}
	a, unjudged := b.ask(ctx, data)
	if a.outcome == CouldNotTell {
		return Verdict{Words: a.words}
	}
	v := Verdict{Outcome: Accepted, Stage: 1}
	if words := a.objection(); words != "" {
		v.Outcome, v.Words = Rejected, words
		if empty := b.askEmpty(ctx); empty.outcome != Accepted {
			v.Outcome = CouldNotTell
			v.Words = butSoDoes(words, "an empty configuration", empty.words)
		}
		return v
	}
	if unjudged != "" {
		v.Warnings = append(v.Warnings, "not judged: "+unjudged)
	}
	if v.Effective = a.effective; v.Effective == nil {
		v.Warnings = append(v.Warnings, fmt.Sprintf("the %s did not print the configuration with its defaults", b.name))
	}
	return v
}

func (b *binary) Defaults(ctx context.Context) (Effective, error) {
	a := b.askEmpty(ctx)
	if a.outcome != Accepted {
		return nil, fmt.Errorf("no defaults of the %s: %s", b.name, a.words)
	}
	if a.effective == nil {
		return nil, fmt.Errorf("no defaults of the %s: it did not print them", b.name)
	}
	return a.effective, nil
}

func (b *binary) askEmpty(ctx context.Context) answer {
	version, err := b.prove(ctx)
	if err != nil {
		return answer{words: err.Error()}
	}
	a, _ := b.ask(ctx, emptyConfig(version, b.kind))
	return a
}

// neverShown says why no binary should be asked: what is empty has no words of the component's, and of two documents it
// would read the first and say nothing of the second; a few aliases can take all memory. "" if it may be.
func (b *binary) neverShown(data []byte) string {
	if len(data) > payload.MaxSize {
		return "larger than 1 MiB"
	}
	if refused := payload.Limits(data); refused != nil {
		return refused.Words
	}
	switch refused := payload.OneDocument(data); {
	case refused == nil, refused.Problem == payload.ProblemSyntax: // that is the component's to refuse
		return ""
	case refused.Problem == payload.ProblemDocuments:
		return fmt.Sprintf("%s: the %s would read the first only", refused.Words, b.name)
	default:
		return refused.Words
	}
}

func emptyConfig(apiVersion, kind string) []byte {
	return []byte("apiVersion: " + apiVersion + "\nkind: " + kind + "\n")
}

// objection is all that the component has against a configuration, what it only warned about included; "" if nothing.
func (a answer) objection() string {
	switch {
	case a.lenient == "":
		return a.words
	case a.words == "":
		return a.lenient
	default:
		return clip(a.words+"; "+a.lenient, maxWords)
	}
}

// YAML returns the configuration as a document: apiVersion and kind first, then the fields by name.
func (e Effective) YAML() ([]byte, error) {
	var document bytes.Buffer
	fields := maps.Clone(e)
	for _, name := range []string{"apiVersion", "kind"} {
		if value, ok := fields[name]; ok {
			fmt.Fprintf(&document, "%s: %s\n", name, value)
			delete(fields, name)
		}
	}
	if len(fields) == 0 {
		return document.Bytes(), nil
	}
	rest, err := yaml.Marshal(fields)
	if err != nil {
		return nil, err
	}
	document.Write(rest)
	return document.Bytes(), nil
}
