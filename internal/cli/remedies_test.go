// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/operator/doctor"
	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

// TestEveryCommandThatAMessageNamesIsValid finds the commands in all texts of
// the programs, of the page and of the alerts, and parses them with the real
// command tree. A remedy that does not work as printed is worse than none.
func TestEveryCommandThatAMessageNamesIsValid(t *testing.T) {
	found := 0
	for _, dir := range []string{"../../internal", "../../cmd", "../../api", "../../config/monitoring"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "testdata":
				return fs.SkipDir
			}

			for _, text := range textsOf(t, path) {
				for _, c := range commandsIn(text) {
					found++
					assert.Equal(t, invalid(c), "", path, "kubectl evenkeel", strings.Join(c, " "))
				}
			}

			return nil
		})
		assert.NoError(t, err)
	}

	assert.That(t, found > 100, "only %d commands were found", found)
}

// placeholder stands for what a program fills in.
const placeholder = "NAME"

// textsOf returns the texts of a file.
func textsOf(t *testing.T, path string) []string {
	switch {
	case strings.HasSuffix(path, "_test.go"):
		return nil
	case strings.HasSuffix(path, ".go"):
		return textsOfGo(t, path)
	case filepath.Ext(path) == ".js", filepath.Base(path) == "rules.yaml":
		raw := assert.Value(os.ReadFile(path))(t)
		text := regexp.MustCompile(`\$\{[^}]*\}|\{\{[^}]*\}\}`).ReplaceAllString(string(raw), placeholder)
		if filepath.Ext(path) == ".yaml" {
			text = strings.Join(strings.Fields(text), " ") // its sentences continue in the next line
		}

		return []string{text}
	}

	return nil
}

var (
	verbs  = regexp.MustCompile(`%(?:\[\d\])?[sqv]`)
	suffix = regexp.MustCompile(`(\w)%s`) // what is filled in here begins with a comma
)

// textsOfGo returns the string literals of a file, with a placeholder for what
// is joined to them.
func textsOfGo(t *testing.T, path string) (texts []string) {
	file := assert.Value(parser.ParseFile(token.NewFileSet(), path, nil, 0))(t)
	joined := map[ast.Expr]bool{}
	var flat func(ast.Expr) string
	flat = func(e ast.Expr) string {
		joined[e] = true
		switch e := e.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
				return verbs.ReplaceAllString(suffix.ReplaceAllString(strings.ReplaceAll(text, "%d", "1"), "$1;"), placeholder)
			}
		case *ast.BinaryExpr:
			if e.Op == token.ADD {
				return flat(e.X) + flat(e.Y)
			}
		}

		joined[e] = false // it can contain other texts

		return placeholder
	}
	ast.Inspect(file, func(n ast.Node) bool {
		e, is := n.(ast.Expr)
		if !is || joined[e] {
			return true
		}

		switch e.(type) {
		case *ast.BasicLit, *ast.BinaryExpr:
			texts = append(texts, flat(e))
		}

		return true
	})

	return texts
}

var (
	commands = regexp.MustCompile("kubectl[ -]evenkeel( [^;:,()'\"`\n|<>&]*)")
	words    = regexp.MustCompile(`[^\s]+`)
	quoted   = regexp.MustCompile(`(--[a-z]+) "[^"]*"`)
	sentence = regexp.MustCompile(`\.(\s)`)
	prose    = []string{"and", "that"} // follow the program's name
)

// commandsIn returns the commands in a text, each with the words after it up to
// the end of the clause.
func commandsIn(text string) (out [][]string) {
	text = sentence.ReplaceAllString(quoted.ReplaceAllString(strings.ReplaceAll(text, "\\\n", " "), "$1 "+placeholder), ";$1")
	for _, m := range commands.FindAllStringSubmatch(text, -1) {
		c := words.FindAllString(strings.TrimRight(m[1], ". "), -1)
		switch {
		case len(c) == 0, slices.Contains(prose, c[0]), c[0] == "--help", c[0] == "support-bundle" && len(c) == 2 && c[1] == placeholder: // the title of the bundle
			continue
		case c[0] == placeholder:
			c[0] = "install" // or uninstall
		}

		for i := range c {
			if c[i] == "N" { // a number
				c[i] = "1"
			}
		}

		out = append(out, c)
	}

	return out
}

// invalid says why no beginning of these words is a command. What follows a
// command is prose: neither a flag nor a name.
func invalid(c []string) string {
	n, err := lengthOf(c)
	switch {
	case n == 0:
		return err.Error()
	case n < len(c) && (strings.HasPrefix(c[n], "-") || c[n] == strings.ToUpper(c[n])):
		return fmt.Sprintf("%q: %v", c[n], err)
	}

	return ""
}

// lengthOf returns of how many words the command at the beginning consists; 0
// if there is none. The error is about all words.
func lengthOf(c []string) (n int, err error) {
	for n = len(c); n > 0; n-- {
		why := parse(c[:n], n == len(c))
		if why == nil {
			return n, err
		}
		if err == nil {
			err = why
		}
	}

	return 0, err
}

// parse parses a command with the real tree. The name of a group of commands is
// valid only alone.
func parse(args []string, alone bool) error {
	root := rootCommand(command.NewEnv(program.Info{}, genericclioptions.IOStreams{}))
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}

	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}

	args = cmd.Flags().Args()
	if cmd == root || cmd.HasSubCommands() && len(args) == 0 && !alone {
		return fmt.Errorf("%s has no such command", cmd.CommandPath())
	}

	for _, check := range []func() error{func() error { return cmd.ValidateArgs(args) }, cmd.ValidateRequiredFlags, cmd.ValidateFlagGroups} {
		if err := check(); err != nil {
			return err
		}
	}

	return nil
}

// TestDoctorsRemediesWorkAsPrinted runs the commands that doctor prints for a
// cluster with many problems.
func TestDoctorsRemediesWorkAsPrinted(t *testing.T) {
	api := newAPI(t)
	for _, p := range assert.Value(doctor.Manifests())(t) {
		if p.Want.GetKind() == "CustomResourceDefinition" {
			assert.NoError(t, api.Create(t.Context(), p.Want))
		}
	}

	fakeapi.Add(api, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "evenkeel-controller"}})
	assert.NoError(t, (&fakeapi.Installers{Client: api}).Image(t.Context(), "evenkeel.dev/agent:v1.0.0"))
	api.AddRolledOut("workers", func(r *v1alpha1.NodeConfigRollout) {
		r.Status.ObservedGeneration = 100 // also after the first of the commands
		r.Status.Phase, r.Status.Message = v1alpha1.RolloutHalted, rollout.Remedies("workers", v1alpha1.HaltTooManyFailures, "", false)
		r.Status.Halt = &v1alpha1.RolloutHalt{Attempt: 1, Reason: v1alpha1.HaltTooManyFailures}
	})
	for _, name := range []string{"bare-1", "bare-2", "bad", "dead", "failed"} {
		n := api.AddNodeOf(time.Hour, name, "workers", "") // its agent has had time
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		assert.NoError(t, api.Status().Update(t.Context(), n))
		if name == "failed" {
			n.Labels[v1alpha1.LabelAgent] = v1alpha1.AgentInstallFailed
		}

		assert.NoError(t, api.Update(t.Context(), n))
	}

	for name, reason := range map[string]string{"bad": v1alpha1.ReasonCrashLooped, "dead": v1alpha1.ReasonDeadEnd} {
		api.AddNodeConfig(name, nil, fakeapi.Failed(reason, "it does not work"))
	}

	ran := map[string]bool{}
	for line := range strings.SplitSeq(api.Run("doctor", "-o", "wide").Out, "\n") {
		for _, c := range commandsIn(line) {
			n, _ := lengthOf(c)
			c = c[:n] // without the prose
			ran[strings.Join(c, " ")] = true
			run := slices.Clone(c)
			if c[0] == "install" {
				run = append(run, "--dry-run")
			}

			r := api.Run(run...)
			assert.That(t, r.Code != command.ExitError, "%s: kubectl evenkeel %s: %s%s", line, strings.Join(c, " "), r.Out, r.Err)
		}
	}

	for _, want := range []string{"install bare-1 bare-2 failed", "install --retry failed", "node bad", "node dead", "rollout status workers"} {
		assert.That(t, ran[want], "doctor does not propose %s, only %v", want, slices.Sorted(maps.Keys(ran)))
	}
}
