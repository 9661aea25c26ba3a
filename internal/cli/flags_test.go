package cli

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
)

// answersFlags creates a NodeConfig whose agent answers the next request about flags.
func answersFlags(t *testing.T, name string, answer func(nc *v1alpha1.NodeConfig, request string) bool) {
	t.Helper()
	nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := admin.Create(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Delete(context.Background(), nc); err != nil {
			t.Error(err)
		}
	})
	nc.Status.Capabilities = []string{v1alpha1.CapabilityFlags}
	if err := admin.Status().Update(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	asController(t, func(ctx context.Context) ([]*v1alpha1.NodeConfig, error) {
		nc := &v1alpha1.NodeConfig{}
		err := admin.Get(ctx, client.ObjectKey{Name: name}, nc)
		return []*v1alpha1.NodeConfig{nc}, err
	}, func(nc *v1alpha1.NodeConfig) bool {
		request := nc.Annotations[v1alpha1.AnnotationFlags]
		return request != "" && answer(nc, request)
	})
}

// notAsked requires that no request is left.
func notAsked(t *testing.T, name string) {
	t.Helper()
	nc := &v1alpha1.NodeConfig{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, nc); err != nil {
		t.Fatal(err)
	}
	if request, is := nc.Annotations[v1alpha1.AnnotationFlags]; is {
		t.Errorf("the request %q is left", request)
	}
}

func TestFlagsPrintsTheAgentsAnswer(t *testing.T) {
	text := "# These flags of the kubelet can be removed:\n#   --max-pods=77 (maxPods)\nmaxPods: 77\n"
	answersFlags(t, "flags-1", func(nc *v1alpha1.NodeConfig, request string) bool {
		nc.Status.Flags = &v1alpha1.FlagsAnswer{Request: request, Text: text}
		return true
	})
	evenkeel(t, "flags", "flags-1").wantOutput(t, text)
	notAsked(t, "flags-1")

	answersFlags(t, "flags-2", func(nc *v1alpha1.NodeConfig, request string) bool {
		nc.Status.Flags = &v1alpha1.FlagsAnswer{Request: request, Text: text, Error: "the drop-in is not equivalent to the flags"}
		return true
	})
	evenkeel(t, "flags", "flags-2").wantExit(t, command.ExitError, []string{text}, "error: node flags-2: the drop-in is not equivalent to the flags")
	notAsked(t, "flags-2")
}

func TestFlagsSaysWhyThereIsNoAnswer(t *testing.T) {
	evenkeel(t, "flags", "nobody").wantExit(t, command.ExitError, nil, "node nobody has no NodeConfig: no agent has ever run there")
	evenkeel(t, "flags", "nobody", "--timeout=0s").wantExit(t, command.ExitError, nil, "--timeout must be longer than 0")

	answersFlags(t, "flags-3", func(*v1alpha1.NodeConfig, string) bool { return false })
	evenkeel(t, "flags", "flags-3", "--timeout=1s").wantExit(t, command.ExitTimeout, nil, "the agent of node flags-3 has not answered within 1s")
	notAsked(t, "flags-3")

	replaced := false
	answersFlags(t, "flags-4", func(nc *v1alpha1.NodeConfig, request string) bool {
		if !replaced {
			nc.Annotations[v1alpha1.AnnotationFlags] = "another"
			replaced = true
			if err := admin.Update(context.Background(), nc); err != nil {
				t.Error(err)
			}
		}
		return false
	})
	evenkeel(t, "flags", "flags-4").wantExit(t, command.ExitError, nil, "was removed or replaced by another one")

	nc := &v1alpha1.NodeConfig{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "flags-4"}, nc); err != nil {
		t.Fatal(err)
	}
	if got := nc.Annotations[v1alpha1.AnnotationFlags]; got != "another" {
		t.Errorf("the other request is %q now", got)
	}
	nc.Status.Capabilities = []string{v1alpha1.CapabilityPreflight}
	if err := admin.Status().Update(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	evenkeel(t, "flags", "flags-4").wantExit(t, command.ExitError, nil, "the agent of node flags-4 cannot answer")
}
