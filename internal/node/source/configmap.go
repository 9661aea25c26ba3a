// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// NodeConfigMap is the name of a ConfigMap that is the configuration source of
// one node.
type NodeConfigMap struct {
	Namespace string
	Name      string
	Node      string
}

// NodeConfigMapOf returns the name of the ConfigMap of a node,
// kubelet-<node-name> as in the proposal. The error is an invalid name.
func NodeConfigMapOf(namespace, node string) (NodeConfigMap, error) {
	name := "kubelet-" + node
	switch {
	case !labelPattern.MatchString(namespace):
		return NodeConfigMap{}, fmt.Errorf("namespace %s: must be at most 63 lower-case letters, digits and dashes",
			oneLine(fmt.Sprintf("%q", namespace)))
	case !namePattern.MatchString(node) || len(name) > 253:
		return NodeConfigMap{}, fmt.Errorf("node %s: the name of the ConfigMap, kubelet-<node-name>, must be at most 253 lower-case letters, "+
			"digits, dashes and dots",
			oneLine(fmt.Sprintf("%q", node)))
	case namespace == metav1.NamespaceSystem && (node == "config" || strings.HasPrefix(node, "config-1.")):
		return NodeConfigMap{}, fmt.Errorf("node %s: ConfigMap %s/%s is kubeadm's, for all nodes, and not this node's own: use another "+
			"namespace (--config-namespace), or the NodeConfig", node, namespace, name)
	}

	return NodeConfigMap{Namespace: namespace, Name: name, Node: node}, nil
}

func (m NodeConfigMap) String() string { return "ConfigMap " + m.Namespace + "/" + m.Name }

// ConfigMapSource reads the intended configuration from a node's own ConfigMap.
// Each content of each object is a revision, so an edit is a change; to delete
// the object of the running configuration means local. It implements the
// precedence of the proposal dynamic-kubelet-settings. It also keeps a
// NodeConfig, from which it uses only the revoked revisions.
type ConfigMapSource struct {
	answers
	client      *Client
	own         NodeConfigMap
	checkpoints Checkpoints
	nodeConfig  *NodeConfigSource

	view view[corev1.ConfigMap] // under mu

	// Used by the goroutine of Run only.
	found  Answer // Assigned, Invalid, or zero
	digest string // the digest of the content that found was made from
}

// NewConfigMapSource returns a source that has no answer until Run.
func NewConfigMapSource(client *Client, own NodeConfigMap, checkpoints Checkpoints, log *slog.Logger) *ConfigMapSource {
	nodeConfig := NewNodeConfigSource(client, own.Node, checkpoints, log)
	nodeConfig.revokedOnly = true
	return &ConfigMapSource{answers: newAnswers(own.String()), client: client, own: own, checkpoints: checkpoints, nodeConfig: nodeConfig}
}

// ShowTo is NodeConfigSource.ShowTo.
func (s *ConfigMapSource) ShowTo(r *Reporter) { s.nodeConfig.ShowTo(r) }

// Run watches the ConfigMap and the NodeConfig until ctx ends.
func (s *ConfigMapSource) Run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := watchObject(watcher{
		client: s.client, gv: coreV1, namespace: s.own.Namespace, resource: "configmaps",
		maxDelay: longestWatchDelay,
		fail:     func(err error) { s.see(nil, err) },
	}, s.own.Name, func(cm *corev1.ConfigMap) { s.see(cm, nil) })
	watching.Go(func() { w.run(ctx) })
	watching.Go(func() { s.nodeConfig.Run(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-s.nodeConfig.Changed():
		}

		if answer, ok := s.compose(); ok {
			nodeConfig := s.nodeConfig.Current()
			answer.NodeConfigUID, answer.Revoked = nodeConfig.NodeConfigUID, nodeConfig.Revoked
			s.publish(answer)
		}
	}
}

// see stores the last known state of the ConfigMap.
func (s *ConfigMapSource) see(cm *corev1.ConfigMap, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view.update(cm, err)
	signal(s.wake)
}

// compose makes an answer of the last known state. It returns false if nothing
// is known yet.
func (s *ConfigMapSource) compose() (Answer, bool) {
	s.mu.Lock()
	v, refresh := s.view, s.refresh
	if v.err == nil {
		s.refresh = false
	}

	s.mu.Unlock()
	switch {
	case v.err != nil:
		return Answer{Intent: trial.Intent{Kind: intentAfter(v.err), Cause: s.describeError(v.err)}, mayPass: true,
			noneSoon: unavailable(v.err), Silent: silent(v.err)}, true
	case !v.synced:
		return Answer{}, false
	case v.object == nil:
		s.found, s.digest = Answer{}, ""
		return Answer{Intent: trial.Intent{Kind: trial.Unassigned, Config: trial.Config{AssignedBy: s.own.String()}, Cause: fmt.Sprintf(
			"%s does not exist, and the configuration of this node does not come from it, so the node keeps its configuration; create it; to "+
				"return to the local configuration, delete it once the node runs it", s.own)}}, true
	}

	s.resolve(v.object, refresh)

	return s.found, true
}

// resolve sets found to what the object asks for. Changes to metadata alone do
// not change found. With refresh the node receives the object again.
func (s *ConfigMapSource) resolve(cm *corev1.ConfigMap, refresh bool) {
	p, digest, err := identify(cm)
	revision := fmt.Sprintf("%s-%.12s", cm.UID, digest)
	if revision == s.found.Config.Revision && digest == s.digest && !refresh {
		return
	}

	s.digest = digest
	c := trial.Config{Revision: revision, ConfigRevision: v1alpha1.ConfigRevision{Namespace: s.own.Namespace, Name: s.own.Name, UID: cm.UID},
		AssignedBy: s.own.String()}
	// A revision holds only the beginning of the digest.
	if recorded := s.checkpoints.Payload(revision); recorded != "" && recorded != digest {
		s.found = invalid(
			"%s (UID: %s) was changed: this node recorded payload %s for revision %s, but now it is %s; change it again, for example by a comment",
			s.own, cm.UID, recorded, revision, cmp.Or(p.SHA256, "none"))
		s.found.Config, s.found.Reason = c, v1alpha1.ReasonObjectChanged

		return
	}

	c.SHA256, c.RequestedTerms, c.Dropin = p.SHA256, asked(p.Trial), p.Key == payload.KeyKubeletDropin
	s.found = Answer{Intent: trial.Intent{Kind: trial.Assigned, Config: c}, Payload: p, PayloadErr: err}
	if refresh || !s.hasCheckpoint(cm, revision, digest) {
		s.found.ConfigMap = encode(cm)
	}
}

// hasCheckpoint reports whether the node has a valid checkpoint of that
// revision of cm, with that payload.
func (s *ConfigMapSource) hasCheckpoint(cm *corev1.ConfigMap, revision, digest string) bool {
	raw, ok := s.checkpoints.Checkpoint(revision)
	if !ok {
		return false
	}

	old := &corev1.ConfigMap{}
	if err := json.Unmarshal(raw, old); err != nil || old.UID != cm.UID {
		return false
	}

	_, oldDigest, _ := identify(old)

	return oldDigest == digest
}

// identify returns the payload of a ConfigMap and its digest. If the payload
// cannot be decoded, the digest is that of all data: a later agent that can
// decode it sees another revision, and tries it.
func identify(cm *corev1.ConfigMap) (p payload.Payload, digest string, err error) {
	if p, err = payload.FromConfigMap(cm); err != nil {
		return p, content(cm), err
	}

	return p, p.SHA256, nil
}

// encode returns an object as a GET returns it: objects of a watch lack their
// kind.
func encode(cm *corev1.ConfigMap) []byte {
	object := *cm
	object.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	raw, err := json.Marshal(object)
	if err != nil {
		return nil // a decoded object can always be encoded
	}

	return raw
}

// describeError says why the ConfigMap cannot be read, and what to do about it.
func (s *ConfigMapSource) describeError(err error) string {
	if noSuchResource(err) {
		return fmt.Sprintf("%s cannot be read: the server does not know ConfigMaps (404): check that the kubeconfig names an API server", s.own)
	}

	return describeError(err, s.own.String(), fmt.Sprintf("allow user system:node:%s to get, list and watch it, or apply "+
		"config/configmap-source, which lets every node read that whole namespace", s.own.Node))
}
