package command

import (
	"context"
	"io"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
)

func TestReadingStandardInputEndsWhenInterrupted(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close()
	e := &Env{IOStreams: genericclioptions.IOStreams{In: in}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := e.ReadFile(ctx, "-", 1); err == nil || !strings.Contains(err.Error(), "interrupted: nothing was written") {
		t.Errorf("the error is %v", err)
	}
}
