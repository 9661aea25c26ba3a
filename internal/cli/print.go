package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/report"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// format is the value of -o. Empty is for people.
type format string

const (
	formatWide format = "wide"
	formatJSON format = "json"
	formatYAML format = "yaml"
	formatName format = "name"
)

// formatFlag adds -o to a command that can print in these formats. A value that is none of them is wrong usage.
func formatFlag(cmd *cobra.Command, f *format, all ...format) {
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = string(one)
	}
	cmd.Flags().VarP(&formatValue{f, names}, "output", "o", "output format: "+strings.Join(names, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

type formatValue struct {
	f   *format
	all []string
}

func (v *formatValue) String() string { return string(*v.f) }
func (v *formatValue) Type() string   { return "format" }
func (v *formatValue) Set(s string) error {
	if !slices.Contains(v.all, s) {
		return fmt.Errorf("must be one of %s", strings.Join(v.all, ", "))
	}
	*v.f = format(s)
	return nil
}

// printObject prints an object, or a list of them, as JSON, YAML or names. What may not be printed is written with an escape
// sequence of the format, so that what is printed means the same.
func printObject(w io.Writer, f format, object runtime.Object) error {
	var p printers.ResourcePrinter
	switch f {
	case formatJSON:
		p = &printers.JSONPrinter{}
	case formatYAML:
		p = &printers.YAMLPrinter{}
	default:
		p = &printers.NamePrinter{}
	}
	print := func(p printers.ResourcePrinter) ([]byte, error) {
		var text bytes.Buffer
		err := (&printers.OmitManagedFieldsPrinter{Delegate: p}).PrintObj(object, &text)
		return text.Bytes(), err
	}
	if f != formatName {
		line, err := print(printers.ResourcePrinterFunc(func(o runtime.Object, w io.Writer) error { return json.NewEncoder(w).Encode(o) }))
		if err != nil {
			return err
		}
		if !payload.Indentable(line) {
			_, err := w.Write(printable.JSON(line)) // that is YAML, too
			return err
		}
	}
	text, err := print(p)
	if err != nil {
		return err
	}
	_, err = w.Write(encoded(f, text))
	return err
}

// encoded returns JSON or YAML without what may not be printed, and with the same meaning.
func encoded(f format, text []byte) []byte {
	switch f {
	case formatJSON:
		return printable.JSON(text)
	case formatYAML:
		return sameYAML(text)
	default:
		return text
	}
}

// sameYAML returns one YAML document without what may not be printed. If there is any such, it has the form of JSON, which is
// YAML too: where a plain text of YAML has it, there is no escape sequence for it.
func sameYAML(document []byte) []byte {
	if printable.Clean(document) {
		return document
	}
	text, err := yaml.YAMLToJSON(document)
	if err != nil {
		return document // the writer makes it printable
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return document
	}
	return append(printable.YAML(indented.Bytes()), '\n')
}

// table prints rows as kubectl does.
func table(w io.Writer, header []string, rows [][]string) error {
	out := printers.GetNewTabWriter(w)
	fmt.Fprintln(out, strings.Join(header, "\t"))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cells[i] = report.OneLine(cell); cell == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(out, strings.Join(cells, "\t"))
	}
	return out.Flush()
}

// style colors words; its zero value leaves them as they are.
type style bool

func (s style) with(code, words string) string {
	if !s {
		return words
	}
	return "\x1b[" + code + "m" + words + "\x1b[0m"
}

func (s style) bold(words string) string   { return s.with("1", words) }
func (s style) dim(words string) string    { return s.with("2", words) }
func (s style) red(words string) string    { return s.with("31", words) }
func (s style) green(words string) string  { return s.with("32", words) }
func (s style) yellow(words string) string { return s.with("33", words) }

// phase colors a phase by how good it is.
func (s style) phase(p v1alpha1.RolloutPhase) string {
	switch p {
	case v1alpha1.RolloutComplete:
		return s.green(string(p))
	case v1alpha1.RolloutInvalid, v1alpha1.RolloutHalted, v1alpha1.RolloutRollingBack, v1alpha1.RolloutRolledBack, v1alpha1.RolloutStuck:
		return s.red(string(p))
	}
	return s.yellow(string(p))
}
