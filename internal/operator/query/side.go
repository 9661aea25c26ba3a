// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Side is one of two configurations to compare.
type Side struct {
	Name   string `json:"name"`
	Source string `json:"source"` // the object or endpoint that it was read from

	Fields map[string]any      `json:"-"`
	Trial  v1alpha1.TrialTerms `json:"-"`
	// Extent says which fields the configuration sets.
	Extent Extent `json:"-"`
}

// Extent says which fields a configuration sets.
type Extent int

// The extents, the smallest first.
const (
	Partial   Extent = iota // a drop-in
	Whole                   // a configuration that replaces the local one; its other fields have defaults
	Effective               // all fields
)

func (e Extent) String() string {
	return [...]string{"a drop-in", "a configuration as written", "the effective configuration"}[e]
}

// SideOf returns the side of a payload.
func SideOf(name, source string, p payload.Payload) Side {
	s := Side{Name: name, Source: source, Fields: p.Fields, Trial: p.Trial, Extent: Whole}
	if p.Key == payload.KeyKubeletDropin {
		s.Extent = Partial
	}

	return s
}

// NodeSide reads the configuration that a node runs according to its
// NodeConfig.
func NodeSide(ctx context.Context, c client.Reader, name string) (Side, error) {
	found, err := getPair(ctx, c, name)
	if err != nil {
		return Side{}, err
	}

	nc := found.Config
	if nc == nil || !fleet.HasReported(nc) {
		return Side{}, fmt.Errorf("the agent of node %s has not reported what it runs: use --live", name)
	}

	active := nc.Status.Active
	if active == nil {
		return Side{}, fmt.Errorf("node %s runs its local configuration, which is not in the API: use --live", name)
	}

	content, err := ActiveContent(ctx, c, active)
	if unreadable := (*Unreadable)(nil); errors.As(err, &unreadable) {
		return Side{}, fmt.Errorf("node %s runs %w: use --live", name, err)
	} else if err != nil {
		return Side{}, fmt.Errorf("read the configuration of node %s: %w", name, err)
	}

	if resolved, err := content.ResolveRecorded(nc.Status.ResolvedValues); err == nil {
		content.Fields = resolved.Fields
	}

	return SideOf("node/"+name, fmt.Sprintf("ConfigMap %s/%s", active.Namespace, active.Name), content), nil
}

// Unreadable is the error for a configuration whose ConfigMap was deleted or
// changed. The node keeps a copy.
type Unreadable struct{ message string }

func (e *Unreadable) Error() string { return e.message }

// ActiveContent reads a configuration that a node reports from its ConfigMap.
// The error is *Unreadable if that was deleted or changed.
func ActiveContent(ctx context.Context, c client.Reader, r *v1alpha1.ConfigRevision) (payload.Payload, error) {
	none, object := payload.Payload{}, fmt.Sprintf("ConfigMap %s/%s", r.Namespace, r.Name)
	var cm corev1.ConfigMap
	err := c.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, &cm)
	switch {
	case apierrors.IsNotFound(err) || err == nil && cm.UID != r.UID:
		return none, &Unreadable{object + ", which was deleted; the node keeps a copy"}
	case err != nil:
		return none, fmt.Errorf("%s: %w", object, err)
	}

	p, err := payload.FromConfigMap(&cm)
	if err != nil {
		return none, &Unreadable{fmt.Sprintf("%s, which was changed since: %v", object, err)}
	}
	if p.SHA256 != r.SHA256 {
		return none, &Unreadable{object + " as it was before it was changed"}
	}

	return p, nil
}

// RolloutSide reads a rollout's template (NAME) or one of its revisions
// (NAME@REVISION).
func RolloutSide(ctx context.Context, c client.Reader, arg string) (Side, error) {
	name, number, numbered := strings.Cut(arg, "@")
	revision, err := strconv.ParseInt(number, 10, 64)
	if numbered && (err != nil || revision < 1) {
		return Side{}, fmt.Errorf("rollout/%s: %q is not a revision number; see `kubectl evenkeel rollout history %s`", arg, number, name)
	}

	r, err := Rollout(ctx, c, name)
	if err != nil {
		return Side{}, err
	}

	var content payload.Payload
	source := "spec.template"
	if !numbered {
		if content, err = ContentIn(ctx, c, r.Spec.Template); err != nil {
			return Side{}, fmt.Errorf("rollout %s: %w", name, err)
		}
	} else {
		all, _, err := Revisions(ctx, c, r)
		if err != nil {
			return Side{}, err
		}
		if content, err = ContentAt(r, all, revision); err != nil {
			return Side{}, err
		}

		at := slices.IndexFunc(all, func(p Revision) bool { return p.Revision == revision })
		source = fmt.Sprintf("ConfigMap %s/%s", all[at].namespace, all[at].ConfigMap)
	}

	return SideOf("rollout/"+arg, source, content), nil
}

// maxConfigz limits a kubelet's answer, in bytes. Its configuration is at most
// 1 MiB.
const maxConfigz = 4 << 20

// ErrNoConfiguration is the error of Configz for an answer that is no
// configuration.
var ErrNoConfiguration = errors.New("not a configuration")

// ConfigzClient returns a client for Configz. It follows no redirects: a
// kubelet could have the user's token sent to another server.
func ConfigzClient(config *rest.Config) (rest.Interface, error) {
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}

	own := *h // it may be http.DefaultClient
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	api, err := typedcorev1.NewForConfigAndClient(config, &own)
	if err != nil {
		return nil, err
	}

	return api.RESTClient(), nil
}

// Configz reads the effective configuration of a node's kubelet, through the
// API server. Numbers are json.Number. The error is one of the API, a *payload.Error
// for an answer that is too large to decode, or wraps ErrNoConfiguration. api
// is a ConfigzClient.
func Configz(ctx context.Context, api rest.Interface, node string) (map[string]any, error) {
	stream, err := api.Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("configz").Stream(ctx)
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code/100 == http.StatusMultipleChoices/100 {
		return nil, fmt.Errorf("%w, but a redirect (HTTP %d)", ErrNoConfiguration, status.Status().Code)
	} else if err != nil {
		return nil, err
	}

	defer stream.Close()
	text, err := io.ReadAll(io.LimitReader(stream, maxConfigz))
	if err != nil {
		return nil, err
	}
	if refused := payload.CheckLimits(text); refused != nil {
		return nil, refused
	}

	var answer struct {
		Kubelet map[string]any `json:"kubeletconfig"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&answer); err != nil || answer.Kubelet == nil {
		return nil, fmt.Errorf("%w: %.100q", ErrNoConfiguration, text)
	}

	return answer.Kubelet, nil
}

// LiveSide reads the effective configuration of a node's kubelet, through the
// API server.
func LiveSide(ctx context.Context, config *rest.Config, node string) (Side, error) {
	s := Side{Name: "node/" + node, Source: "the kubelet's /configz", Extent: Effective}
	api, err := ConfigzClient(config)
	if err != nil {
		return s, err
	}

	var refused *payload.Error
	s.Fields, err = Configz(ctx, api, node)
	switch {
	case apierrors.IsNotFound(err):
		return s, fmt.Errorf("node %q does not exist: list the nodes with: kubectl evenkeel nodes", node)
	case apierrors.IsForbidden(err):
		return s, fmt.Errorf("--live needs permission to get nodes/proxy of node %s; without --live, the NodeConfig is compared: %w", node, err)
	case errors.As(err, &refused), errors.Is(err, ErrNoConfiguration):
		return s, fmt.Errorf("/configz of the kubelet of node %s: %w", node, err)
	case err != nil:
		return s, fmt.Errorf("the API server cannot reach the kubelet of node %s (omit --live to compare the NodeConfig): %w", node, err)
	}

	return s, nil
}
