package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Side is one of two configurations that are compared.
type Side struct {
	Name   string `json:"name"`
	Source string `json:"source"` // where it comes from

	Fields map[string]any        `json:"-"`
	Trial  payload.TrialSettings `json:"-"`
	// Extent is how much of a whole it names.
	Extent Extent `json:"-"`
}

// Extent is how much of a whole a configuration names.
type Extent int

const (
	Partial   Extent = iota // a drop-in
	Whole                   // a configuration that replaces the local one; what it does not name has its default
	Effective               // every field
)

func (e Extent) String() string {
	return [...]string{"a drop-in", "a configuration as it is written", "what is effective"}[e]
}

// SideOf is a payload, and where it comes from.
func SideOf(name, source string, p payload.Payload) Side {
	s := Side{Name: name, Source: source, Fields: p.Fields, Trial: p.Trial, Extent: Whole}
	if p.Key == payload.KeyKubeletDropin {
		s.Extent = Partial
	}
	return s
}

// NodeSide is what a node runs, as its NodeConfig says.
func NodeSide(ctx context.Context, c client.Reader, name string) (Side, error) {
	found, err := GetPair(ctx, c, name)
	if err != nil {
		return Side{}, err
	}
	nc := found.Config
	if nc == nil || !HasReported(nc) {
		return Side{}, fmt.Errorf("node %s has no agent yet that could say what it runs: use --live", name)
	}
	active := nc.Status.Active
	if active == nil {
		return Side{}, fmt.Errorf("node %s runs its local configuration, which only the node knows: use --live", name)
	}
	content, err := ContentOf(ctx, c, active)
	if unreadable := (*Unreadable)(nil); errors.As(err, &unreadable) {
		return Side{}, fmt.Errorf("node %s runs %w: use --live", name, err)
	} else if err != nil {
		return Side{}, fmt.Errorf("get what node %s runs: %w", name, err)
	}
	p, err := PayloadOf(content)
	return SideOf("node/"+name, fmt.Sprintf("ConfigMap %s/%s", active.Namespace, active.Name), p), err
}

// Unreadable is a configuration that a node keeps a copy of, and that its ConfigMap does not hold any more.
type Unreadable struct{ words string }

func (e *Unreadable) Error() string { return e.words }

// ContentOf reads a configuration that a node names, from its ConfigMap. The error is *Unreadable if that does not hold it
// any more.
func ContentOf(ctx context.Context, c client.Reader, r *v1alpha1.ConfigRevision) (policy.Content, error) {
	none, object := policy.Content{}, fmt.Sprintf("ConfigMap %s/%s", r.Namespace, r.Name)
	var cm corev1.ConfigMap
	err := c.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, &cm)
	switch {
	case apierrors.IsNotFound(err) || err == nil && cm.UID != r.UID:
		return none, &Unreadable{fmt.Sprintf("%s (UID: %s), which is gone; it keeps a copy of its own", object, r.UID)}
	case err != nil:
		return none, fmt.Errorf("%s: %w", object, err)
	}
	p, err := payload.FromConfigMap(&cm)
	if err != nil {
		return none, &Unreadable{fmt.Sprintf("%s, which was edited since: %v", object, err)}
	}
	if p.SHA256 != r.SHA256 {
		return none, &Unreadable{object + " as it was before somebody edited it"}
	}
	return policy.Content{Key: p.Key, Data: string(p.Data), SHA256: p.SHA256}, nil
}

// RolloutSide is what a rollout's template holds, or one of its revisions: NAME or NAME@REVISION.
func RolloutSide(ctx context.Context, c client.Reader, arg string) (Side, error) {
	name, number, numbered := strings.Cut(arg, "@")
	wanted, err := strconv.ParseInt(number, 10, 64)
	if numbered && (err != nil || wanted < 1) {
		return Side{}, fmt.Errorf("rollout/%s: %q is no number of a revision; see `kubectl evenkeel rollout history %s`", arg, number, name)
	}
	r, err := Rollout(ctx, c, name)
	if err != nil {
		return Side{}, err
	}
	var content policy.Content
	source := "spec.template"
	if !numbered {
		if content, err = ContentIn(ctx, c, r.Spec.Template); err != nil {
			return Side{}, fmt.Errorf("rollout %s: %w", name, err)
		}
	} else {
		all, err := Pasts(ctx, c, r)
		if err != nil {
			return Side{}, err
		}
		if content, err = ContentAt(r, all, wanted); err != nil {
			return Side{}, err
		}
		source = fmt.Sprintf("ConfigMap %s/%s", policy.SettingsOf(r, nil).Namespace, policy.RevisionName(name, content.SHA256))
	}
	p, err := PayloadOf(content)
	return SideOf("rollout/"+arg, source, p), err
}

// maxConfigz is the largest answer of a kubelet that is read, in bytes: its configuration is 1 MiB at most.
const maxConfigz = 4 << 20

// atMost reads what open returns, up to a number of bytes.
func atMost(most int64, open func() (io.ReadCloser, error)) ([]byte, error) {
	stream, err := open()
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	return io.ReadAll(io.LimitReader(stream, most))
}

// LiveSide asks a node's kubelet, through the API server, what is effective there.
func LiveSide(ctx context.Context, config *rest.Config, node string) (Side, error) {
	s := Side{Name: "node/" + node}
	api, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return s, err
	}
	text, err := atMost(maxConfigz, func() (io.ReadCloser, error) {
		return api.RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("configz").Stream(ctx)
	})
	switch {
	case apierrors.IsNotFound(err):
		return s, fmt.Errorf("there is no node %q; see `kubectl evenkeel nodes`: %w", node, err)
	case apierrors.IsForbidden(err):
		return s, fmt.Errorf("--live needs the right to get nodes/proxy of node %s; without --live, a NodeConfig is enough: %w", node, err)
	case err != nil:
		return s, fmt.Errorf("the API server does not get an answer from the kubelet of node %s (leave --live out to see what its NodeConfig says): %w", node, err)
	}
	if refused := payload.CheckLimits(text); refused != nil {
		return s, fmt.Errorf("what the kubelet of node %s answers to /configz: %w", node, refused)
	}
	var answer struct {
		Kubelet map[string]any `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Kubelet == nil {
		return s, fmt.Errorf("the kubelet of node %s does not answer /configz with a configuration: %.100q", node, text)
	}
	s.Source, s.Fields, s.Extent = "its kubelet's /configz", answer.Kubelet, Effective
	return s, nil
}
