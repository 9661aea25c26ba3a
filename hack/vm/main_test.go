package main

import (
	"slices"
	"testing"
)

func TestAnUnknownStepIsRefusedBeforeAnythingStarts(t *testing.T) {
	l := &lab{}
	err := l.runSteps(t.Context(), "boot,fly")
	if err == nil || err.Error() != `unknown step "fly": see -list` || l.dir != "" {
		t.Errorf("the error is %v, the directory %q", err, l.dir)
	}
}

func TestEachStepHasANameOfItsOwn(t *testing.T) {
	var names []string
	for _, s := range steps {
		if s.name == "" || s.what == "" || slices.Contains(names, s.name) {
			t.Errorf("step %q: %q", s.name, s.what)
		}
		names = append(names, s.name)
	}
}
