// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printing formats the output of commands: tables, objects as JSON and
// YAML, colors.
//
// It must not know any command, nor where output goes: callers pass a writer.
package printing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

// Format is the value of -o. The zero value is output for people.
type Format string

// The values of -o.
const (
	Wide Format = "wide"
	JSON Format = "json"
	YAML Format = "yaml"
	Name Format = "name"
)

// FormatFlag adds -o with these formats to a command. Another value is wrong
// usage.
func FormatFlag(cmd *cobra.Command, f *Format, all ...Format) {
	program.Choice(cmd, f, "output", "o", "output format", all...)
}

// Object prints an object or a list of objects as JSON, YAML or names, without
// managed fields. An object that is too deep to be indented is printed as one
// line of JSON, which is valid YAML, too.
func Object(w io.Writer, f Format, object runtime.Object) error {
	p := printers.ResourcePrinterFunc(func(o runtime.Object, w io.Writer) error {
		if f == Name {
			return (&printers.NamePrinter{}).PrintObj(o, w)
		}

		line, err := Line(o)
		if err != nil {
			return err
		}

		if !payload.Indentable([]byte(line)) {
			_, err := fmt.Fprintln(w, line)
			return err
		}

		return Encode(w, f, o)
	})
	return (&printers.OmitManagedFieldsPrinter{Delegate: p}).PrintObj(object, w)
}

// sameYAML returns a YAML document with printable characters only. If the
// document has other characters, the result has the form of JSON, which is YAML
// too, because a plain scalar of YAML has no escape sequences.
func sameYAML(document []byte) []byte {
	if printable.Clean(document) {
		return document
	}

	text, err := yaml.YAMLToJSON(document)
	if err != nil {
		return document // the writer escapes it
	}

	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return document
	}

	return append(printable.YAML(indented.Bytes()), '\n')
}

// Table prints rows as kubectl does. An empty cell becomes "-".
func Table(w io.Writer, header []string, rows [][]string) error {
	out := printers.GetNewTabWriter(w)
	fmt.Fprintln(out, strings.Join(header, "\t"))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cells[i] = printable.Line(cell); cell == "" {
				cells[i] = "-"
			}
		}

		fmt.Fprintln(out, strings.Join(cells, "\t"))
	}

	return out.Flush()
}

// Style colors text; the zero value does not.
type Style bool

func (s Style) with(code, words string) string {
	if !s {
		return words
	}

	return "\x1b[" + code + "m" + words + "\x1b[0m"
}

// Bold returns bold text.
func (s Style) Bold(words string) string { return s.with("1", words) }

// Dim returns dim text.
func (s Style) Dim(words string) string { return s.with("2", words) }

// Red returns red text.
func (s Style) Red(words string) string { return s.with("31", words) }

// Green returns green text.
func (s Style) Green(words string) string { return s.with("32", words) }

// Yellow returns yellow text.
func (s Style) Yellow(words string) string { return s.with("33", words) }

// Phase colors a phase by how good it is.
func (s Style) Phase(p v1alpha1.RolloutPhase) string {
	switch p {
	case v1alpha1.RolloutComplete:
		return s.Green(string(p))
	case v1alpha1.RolloutInvalid, v1alpha1.RolloutHalted, v1alpha1.RolloutRollingBack, v1alpha1.RolloutRolledBack, v1alpha1.RolloutStuck:
		return s.Red(string(p))
	}

	return s.Yellow(string(p))
}

// Cell returns text as one line of limited length, for the cell of a table.
func Cell(s string) string { return printable.Truncate(printable.Line(s), 120) }

// Encode writes a value as JSON or YAML. Characters that are not printable
// become escape sequences of the format.
func Encode(w io.Writer, f Format, v any) error {
	if f == YAML {
		text, err := yaml.Marshal(v)
		if err == nil {
			_, err = w.Write(sameYAML(text))
		}

		return err
	}

	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	if err == nil {
		_, err = w.Write(printable.JSON(text.Bytes()))
	}

	return err
}

// Line returns an object as one line of JSON.
func Line(object any) (string, error) {
	line, err := json.Marshal(object)
	return string(printable.JSON(line)), err
}

// Document returns an object as a YAML document of a stream.
func Document(object runtime.Object) (string, error) {
	var text strings.Builder
	err := Object(&text, YAML, object)
	return "---\n" + strings.TrimSuffix(text.String(), "\n"), err
}

// Value returns the value of a field for people: JSON, or "unset" for nil.
func Value(v any) string {
	text, err := json.Marshal(v)
	switch {
	case err != nil:
		return fmt.Sprint(v)
	case string(text) == "null":
		return "unset"
	}

	return string(text)
}
