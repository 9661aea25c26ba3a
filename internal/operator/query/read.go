// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package query reads from the API server what a command or the dashboard
// needs: nodes, rollouts, revisions, configurations, Events, and the input of a
// rollout's plan.
//
// It converts with internal/fleet, as the controller does. It must not decide,
// write, or describe: internal/operator/describe does that.
package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// Connect returns a client for all kinds that commands and the dashboard read
// or write. It has no cache. It sets the user agent and the limits of config.
func Connect(config *rest.Config, userAgent string) (client.WithWatch, error) {
	config.UserAgent, config.QPS, config.Burst = userAgent, 50, 100
	scheme := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(v1alpha1.AddToScheme, appsv1.AddToScheme, authorizationv1.AddToScheme, coordinationv1.AddToScheme,
		corev1.AddToScheme, discoveryv1.AddToScheme, metav1.AddMetaToScheme)
	if err := kinds.AddToScheme(scheme); err != nil {
		return nil, err
	}

	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// Pages yields the objects of a list, page by page, in the order of their
// names. list is empty. An error ends it.
func Pages[T client.Object](ctx context.Context, c client.Reader, list client.ObjectList, options ...client.ListOption) iter.Seq2[T,
	error] {
	return func(yield func(T, error) bool) {
		for token := ""; ; {
			page := list.DeepCopyObject().(client.ObjectList)
			err := c.List(ctx, page, append([]client.ListOption{client.Limit(fleet.PageSize), client.Continue(token)}, options...)...)
			var items []runtime.Object
			if err == nil {
				items, err = meta.ExtractList(page)
			}

			if err != nil {
				yield(*new(T), err)
				return
			}

			for _, o := range items {
				if !yield(o.(T), nil) {
					return
				}
			}

			if token = page.GetContinue(); token == "" {
				return
			}
		}
	}
}

// Metadata yields the metadata of the objects of a list.
func Metadata(ctx context.Context, c client.Reader, kind schema.GroupVersionKind,
	options ...client.ListOption) iter.Seq2[*metav1.PartialObjectMetadata, error] {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	return Pages[*metav1.PartialObjectMetadata](ctx, c, list, options...)
}

// Configs yields all NodeConfigs.
func Configs(ctx context.Context, c client.Reader) iter.Seq2[*v1alpha1.NodeConfig, error] {
	return Pages[*v1alpha1.NodeConfig](ctx, c, &v1alpha1.NodeConfigList{})
}

// Pairs yields the selected nodes with their NodeConfigs, by name. A selector
// that selects every node also yields NodeConfigs without a Node, after all
// others. In memory are all NodeConfigs, and one page of Nodes, which are
// larger.
func Pairs(ctx context.Context, c client.Reader, selector labels.Selector) iter.Seq2[fleet.Pair, error] {
	return func(yield func(fleet.Pair, error) bool) {
		configs := map[string]*v1alpha1.NodeConfig{}
		for nc, err := range Configs(ctx, c) {
			if err != nil {
				yield(fleet.Pair{}, fmt.Errorf("list NodeConfigs: %w", err))
				return
			}

			configs[nc.Name] = nc
		}

		for node, err := range Pages[*corev1.Node](ctx, c, &corev1.NodeList{}, client.MatchingLabelsSelector{Selector: selector}) {
			if err != nil {
				yield(fleet.Pair{}, fmt.Errorf("list nodes: %w", err))
				return
			}

			if !yield(fleet.Pair{Node: node, Config: configs[node.Name]}, nil) {
				return
			}

			delete(configs, node.Name)
		}

		if !selector.Empty() {
			return
		}

		for _, name := range slices.Sorted(maps.Keys(configs)) {
			if !yield(fleet.Pair{Config: configs[name]}, nil) {
				return
			}
		}
	}
}

// MayNotListNodes reports whether the API server refuses to list Nodes because
// of the user's permissions.
func MayNotListNodes(ctx context.Context, c client.Reader) bool {
	return apierrors.IsForbidden(c.List(ctx, &corev1.NodeList{}, client.Limit(1)))
}

// ConfigPairs yields all NodeConfigs without their Nodes, for users who may not
// list Nodes.
func ConfigPairs(ctx context.Context, c client.Reader) iter.Seq2[fleet.Pair, error] {
	return func(yield func(fleet.Pair, error) bool) {
		for nc, err := range Configs(ctx, c) {
			if err != nil {
				err = fmt.Errorf("list NodeConfigs: %w", err)
			}
			if !yield(fleet.Pair{Config: nc, NodeUnread: true}, err) {
				return
			}
		}
	}
}

// FromServer sets the kind of a rollout, which decoding drops.
func FromServer(r *v1alpha1.NodeConfigRollout) {
	r.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeConfigRollout"))
}

// Rollouts reads all rollouts: there are few of them.
func Rollouts(ctx context.Context, c client.Reader) (*v1alpha1.NodeConfigRolloutList, error) {
	all := &v1alpha1.NodeConfigRolloutList{Items: []v1alpha1.NodeConfigRollout{}}
	all.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeConfigRolloutList"))
	for r, err := range Pages[*v1alpha1.NodeConfigRollout](ctx, c, &v1alpha1.NodeConfigRolloutList{}) {
		if err != nil {
			return nil, err
		}

		FromServer(r)
		all.Items = append(all.Items, *r)
	}

	return all, nil
}

// RolloutNames returns the names of all rollouts.
func RolloutNames(ctx context.Context, c client.Reader) ([]string, error) {
	return namesOf(ctx, c, v1alpha1.GroupVersion.WithKind("NodeConfigRolloutList"))
}

// NodeNames returns the names of all nodes.
func NodeNames(ctx context.Context, c client.Reader) ([]string, error) {
	return namesOf(ctx, c, corev1.SchemeGroupVersion.WithKind("NodeList"))
}

func namesOf(ctx context.Context, c client.Reader, list schema.GroupVersionKind) ([]string, error) {
	var names []string
	for object, err := range Metadata(ctx, c, list) {
		if err != nil {
			return nil, err
		}

		names = append(names, object.Name)
	}

	return names, nil
}

// Rollout reads one rollout.
func Rollout(ctx context.Context, c client.Reader, name string) (*v1alpha1.NodeConfigRollout, error) {
	r := &v1alpha1.NodeConfigRollout{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, r)
	if missing(err) {
		return nil, notFound(ctx, c, name)
	}
	if err != nil {
		return nil, fmt.Errorf("read rollout %q: %w", name, err)
	}

	FromServer(r)

	return r, nil
}

// Unobserved describes a rollout whose status is older than its spec.
const Unobserved = "the controller has not observed this change yet; if this stays so: kubectl evenkeel doctor"

// Observed reports whether a rollout's status is for its newest spec.
func Observed(r *v1alpha1.NodeConfigRollout) bool { return r.Status.ObservedGeneration >= r.Generation }

// ObserveTimeout is how long a command waits until a controller observes a
// change.
const ObserveTimeout = 5 * time.Second

// ErrUnobserved is the error of ObservedRollout for a status that is older than
// the spec.
var ErrUnobserved = errors.New(Unobserved)

// ObservedRollout reads a rollout, and waits up to ObserveTimeout until its
// status is for its newest spec. After that it returns the rollout and
// ErrUnobserved.
func ObservedRollout(ctx context.Context, c client.Reader, name string) (r *v1alpha1.NodeConfigRollout, err error) {
	late := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, ObserveTimeout, true, func(context.Context) (bool, error) {
		r, err = Rollout(ctx, c, name) // not the context of the poll, so that a read is not cut off
		return err != nil || Observed(r), nil
	})
	if err == nil && late != nil {
		err = cmp.Or(ctx.Err(), fmt.Errorf("rollout %q: %w", name, ErrUnobserved))
	}

	return r, err
}

// Renewal is when evenkeel-controller last renewed its Lease. Time is zero if
// there is no Lease, or if it cannot be read.
type Renewal struct {
	Time     time.Time
	Missing  bool // there is no Lease: no controller has ever led
	Released bool // nobody holds the Lease
}

// ControllerRenewal reads the Lease of evenkeel-controller in a namespace.
func ControllerRenewal(ctx context.Context, c client.Reader, namespace string) Renewal {
	lease, err := ControllerLease(ctx, c, namespace)
	return Renewal{
		Time: cmp.Or(lease.Spec.RenewTime, &metav1.MicroTime{}).Time, Missing: apierrors.IsNotFound(err),
		Released: err == nil && *cmp.Or(lease.Spec.HolderIdentity, new("")) == "",
	}
}

// ControllerLease reads the Lease of evenkeel-controller in a namespace.
func ControllerLease(ctx context.Context, c client.Reader, namespace string) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	return lease, c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.ControllerLease}, lease)
}

// Settings returns the settings of the controller that runs a rollout. It reads
// the other rollouts if the controller has not processed this one yet.
func Settings(ctx context.Context, c client.Reader, r *v1alpha1.NodeConfigRollout) (v1alpha1.RolloutController, error) {
	if r.Status.Controller != nil {
		return fleet.SettingsOf(r, nil), nil
	}

	all, err := Rollouts(ctx, c)
	if err != nil {
		return v1alpha1.RolloutController{}, fmt.Errorf("list rollouts: %w", err)
	}

	return fleet.SettingsOf(r, all.Items), nil
}

// missing reports whether an object does not exist. A 404 without the API
// server's Status means that the address does not.
func missing(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// notFound is the error for an unknown rollout: it lists the existing ones.
func notFound(ctx context.Context, c client.Reader, name string) error {
	names, err := RolloutNames(ctx, c)
	if err != nil {
		return fmt.Errorf("rollout %q does not exist", name)
	}

	if len(names) == 0 {
		return fmt.Errorf("rollout %q does not exist, and there are no others: create one with: kubectl evenkeel push NAME -f FILE --selector "+
			"LABELS", name)
	}

	return fmt.Errorf("rollout %q does not exist; existing rollouts: %s", name, printable.Few(names))
}

// agentComponent is the source of the Events that agents write.
const agentComponent = "evenkeel-agent"

// maxEvents is the number of Events that are read at most for one question:
// those of a large fleet would keep an API server busy.
const maxEvents = 10_000

// RolloutEvents returns Events of a rollout.
func RolloutEvents(ctx context.Context, c client.Reader, name string) ([]corev1.Event, error) {
	return eventsOf(ctx, c, fields.Set{"involvedObject.kind": "NodeConfigRollout", "involvedObject.name": name})
}

// NodeEvents returns Events that the agent of a node wrote; without a name,
// those of all nodes, at most 10,000.
func NodeEvents(ctx context.Context, c client.Reader, name string) ([]corev1.Event, error) {
	of := fields.Set{"involvedObject.kind": "Node", "source": agentComponent}
	if name != "" {
		of["involvedObject.name"] = name
	}

	return eventsOf(ctx, c, of)
}

// eventsOf lists Events of objects without a namespace, which are in the
// namespace default.
func eventsOf(ctx context.Context, c client.Reader, of fields.Set) ([]corev1.Event, error) {
	var out []corev1.Event
	for e, err := range Pages[*corev1.Event](ctx, c, &corev1.EventList{}, client.InNamespace(metav1.NamespaceDefault),
		client.MatchingFieldsSelector{Selector: of.AsSelector()}) {
		if err != nil {
			return nil, fmt.Errorf("list Events: %w", err)
		}
		if out = append(out, *e); len(out) == maxEvents {
			break
		}
	}

	return slices.Clip(out), nil
}

// getPair reads a node and its NodeConfig. It is no error if one of them does
// not exist, or if the user may not read Nodes but the NodeConfig exists.
func getPair(ctx context.Context, c client.Reader, name string) (fleet.Pair, error) {
	var p fleet.Pair
	var node corev1.Node
	var config v1alpha1.NodeConfig
	key := client.ObjectKey{Name: name}
	err := c.Get(ctx, key, &node)
	switch {
	case err == nil:
		p.Node = &node
	case apierrors.IsForbidden(err):
		p.NodeUnread = true
	case !missing(err):
		return p, fmt.Errorf("get node %s: %w", name, err)
	}

	denied := err
	err = c.Get(ctx, key, &config)
	switch {
	case err == nil:
		p.Config = &config
	case !missing(err):
		return p, fmt.Errorf("get NodeConfig %s: %w", name, err)
	}

	if p.NodeUnread && p.Config == nil {
		return p, fmt.Errorf("get node %s: %w", name, denied)
	}
	if p.Node == nil && p.Config == nil {
		return p, fmt.Errorf("node %q does not exist: list the nodes with: kubectl evenkeel nodes", name)
	}

	return p, nil
}

// NodeView is a node with the rollouts that select it.
type NodeView struct {
	fleet.Pair
	Rollouts []string // the rollouts that select the node, the owner first
	Owner    string   // the rollout that assigns its configuration; empty: none
	Fleet    *Fleet   // of the owner; nil without an owner, or if it cannot be planned
	Err      error    // why the owner cannot be planned
	// AgentTimeout is the time after which the controller takes an agent that
	// does not answer for silent.
	AgentTimeout time.Duration
}

// ViewNode reads a node, its NodeConfig, and the fleet of the rollout that owns
// the node.
func ViewNode(ctx context.Context, c client.Reader, name string) (*NodeView, error) {
	p, err := getPair(ctx, c, name)
	if err != nil {
		return nil, err
	}

	list, err := Rollouts(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("list rollouts: %w", err)
	}

	all := list.Items
	v := &NodeView{Pair: p, AgentTimeout: fleet.SettingsIn(all).AgentTimeout.Duration}
	if p.Node == nil {
		return v, nil
	}

	claims := fleet.ClaimsOn(fleet.SelectionsOf(all), p.Node)
	n := fleet.NodeOf(p.Node, p.Config)
	v.Owner = rollout.Holder(claims, &n)
	if v.Owner != "" {
		v.Rollouts = append(v.Rollouts, v.Owner)
	}

	for _, claim := range claims {
		if claim.Name != v.Owner {
			v.Rollouts = append(v.Rollouts, claim.Name)
		}
	}

	for i := range all {
		if all[i].Name == v.Owner {
			v.Fleet, v.Err = Gather(ctx, c, &all[i], nil)
		}
	}

	return v, nil
}
