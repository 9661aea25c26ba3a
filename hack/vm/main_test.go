package main

import (
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAnUnknownStepIsRefusedBeforeAnythingStarts(t *testing.T) {
	l := &lab{}
	err := l.runSteps(t.Context(), "boot,fly")
	assert.That(t, err != nil && err.Error() == `unknown step "fly": see -list` && l.dir == "", "the error is %v, the directory %q", err, l.dir)
}

func TestEachStepHasANameOfItsOwn(t *testing.T) {
	var names []string
	for _, s := range steps {
		assert.That(t, s.name != "" && s.what != "" && !slices.Contains(names, s.name), "step %q: %q", s.name, s.what)
		names = append(names, s.name)
	}
}
