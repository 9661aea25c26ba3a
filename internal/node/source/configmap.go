package source

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// NodeConfigMap names the ConfigMap that is one node's own source of configuration.
type NodeConfigMap struct {
	Namespace string
	Name      string
	Node      string
}

// NodeConfigMapOf returns the ConfigMap of a node, the proposal's kubelet-<node-name>. The error says which name no
// such object can have.
func NodeConfigMapOf(namespace, node string) (NodeConfigMap, error) {
	name := "kubelet-" + node
	switch {
	case !labelPattern.MatchString(namespace):
		return NodeConfigMap{}, fmt.Errorf("namespace %s: its name must be lower-case letters, digits and dashes, at most 63", bound(fmt.Sprintf("%q", namespace)))
	case !namePattern.MatchString(node) || len(name) > 253:
		return NodeConfigMap{}, fmt.Errorf("node %s: a ConfigMap kubelet-<node-name> must be named with lower-case letters, digits, dashes and dots, at most 253",
			bound(fmt.Sprintf("%q", node)))
	}
	return NodeConfigMap{Namespace: namespace, Name: name, Node: node}, nil
}

func (m NodeConfigMap) String() string { return "ConfigMap " + m.Namespace + "/" + m.Name }

// ConfigMapSource finds what a node's own ConfigMap asks for. Each content of each object is a revision of its own, so
// that an edit is a change; that the object of what runs was deleted is intentional, and means local. It implements the precedence of
// the proposal dynamic-kubelet-settings. Of the NodeConfig it minds what is revoked; that is created where there is none.
type ConfigMapSource struct {
	answers
	client     *Client
	own        NodeConfigMap
	records    Records
	nodeConfig *NodeConfigSource

	view view[corev1.ConfigMap] // under mu

	// Of Run alone.
	found  Answer // Assigned, Invalid, or zero
	digest string // what found is about, besides the revision
}

// NewConfigMapSource returns a source that answers nothing until Run.
func NewConfigMapSource(client *Client, own NodeConfigMap, records Records, log *slog.Logger) *ConfigMapSource {
	nodeConfig := NewNodeConfigSource(client, own.Node, records, log)
	nodeConfig.beside = true
	return &ConfigMapSource{answers: newAnswers(own.String()), client: client, own: own, records: records, nodeConfig: nodeConfig}
}

// Run watches the ConfigMap, and the NodeConfig beside it, until ctx ends.
func (s *ConfigMapSource) Run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := single(feed{
		client: s.client, gv: coreV1, namespace: s.own.Namespace, resource: "configmaps",
		slowest: 20 * time.Second,
		fail:    func(err error) { s.see(nil, err) },
	}, s.own.Name, func(cm *corev1.ConfigMap) { s.see(cm, nil) })
	watching.Go(func() { f.run(ctx) })
	watching.Go(func() { s.nodeConfig.Run(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-s.nodeConfig.Changed():
		}
		if answer, ok := s.compose(); ok {
			beside := s.nodeConfig.Current()
			answer.NodeConfigUID, answer.Revoked = beside.NodeConfigUID, beside.Revoked
			s.publish(answer)
		}
	}
}

// see takes down what was seen of the ConfigMap.
func (s *ConfigMapSource) see(cm *corev1.ConfigMap, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view.take(cm, err)
	signal(s.wake)
}

// compose makes an answer of what was seen. It returns false as long as there is nothing to say that was not said
// before.
func (s *ConfigMapSource) compose() (Answer, bool) {
	s.mu.Lock()
	v, again := s.view, s.again
	if v.err == nil {
		s.again = false
	}
	s.mu.Unlock()
	switch {
	case v.err != nil:
		return Answer{Kind: trial.Unanswered, hopeless: hopeless(v.err), Cause: s.explain(v.err)}, true
	case !v.synced:
		return Answer{}, false
	case v.object == nil:
		s.found, s.digest = Answer{}, ""
		return Answer{Kind: trial.Unassigned, Config: trial.Config{AssignedBy: s.own.String()}, Cause: fmt.Sprintf(
			"there is no %s, and what the node has did not come from it, so it is kept; create it, and to go to the local configuration delete it once this node runs it", s.own)}, true
	}
	s.resolve(v.object, again)
	return s.found, true
}

// resolve makes found what the object asks for. As long as the object carries the same, found stays as it is, whatever
// happens to its metadata, unless it is to be resolved again: then the node gets the object anew.
func (s *ConfigMapSource) resolve(cm *corev1.ConfigMap, again bool) {
	p, digest, err := identify(cm)
	revision := fmt.Sprintf("%s-%.12s", cm.UID, digest)
	if revision == s.found.Config.Revision && digest == s.digest && !again {
		return
	}
	s.digest = digest
	c := trial.Config{Revision: revision, Namespace: s.own.Namespace, Name: s.own.Name, UID: string(cm.UID), AssignedBy: s.own.String()}
	// A revision has only the beginning of the digest.
	if recorded := s.records.Payload(revision); recorded != "" && recorded != digest {
		s.found = Answer{Kind: trial.Invalid, Config: c, Changed: true, Cause: fmt.Sprintf(
			"%s (UID: %s) was changed: this node has the payload %s on record as revision %s, but it now is %s; change it again, a comment will do",
			s.own, cm.UID, recorded, revision, orNone(p.SHA256))}
		return
	}
	c.Payload, c.Asked, c.Dropin = p.SHA256, asked(p.Trial), p.Key == payload.KeyKubeletDropin
	s.found = Answer{Kind: trial.Assigned, Config: c, Payload: p, PayloadErr: err}
	if again || !s.kept(cm, revision, digest) {
		s.found.ConfigMap = whole(cm)
	}
}

// kept tells whether the node has a checkpoint of that revision, which is one of cm, with the payload that it names.
func (s *ConfigMapSource) kept(cm *corev1.ConfigMap, revision, digest string) bool {
	raw, ok := s.records.Checkpoint(revision)
	if !ok {
		return false
	}
	old := &corev1.ConfigMap{}
	if err := json.Unmarshal(raw, old); err != nil || old.UID != cm.UID {
		return false // it is written anew
	}
	_, has, _ := identify(old)
	return has == digest
}

// identify returns the payload of a ConfigMap and its digest, or why it cannot be decoded, and a digest of all that it
// carries: a later agent that can decode it takes it for another revision, and tries it.
func identify(cm *corev1.ConfigMap) (p payload.Payload, digest string, err error) {
	if p, err = payload.FromConfigMap(cm); err != nil {
		return p, content(cm), err
	}
	return p, p.SHA256, nil
}

// whole is an object as a GET returns it: what a watch hands on does not say what it is.
func whole(cm *corev1.ConfigMap) []byte {
	object := *cm
	object.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	raw, err := json.Marshal(object)
	if err != nil {
		return nil // what was decoded can always be encoded
	}
	return raw
}

// explain says why the ConfigMap could not be seen, and what to do about it.
func (s *ConfigMapSource) explain(err error) string {
	if noSuchResource(err) {
		return fmt.Sprintf("%s cannot be read: the server knows no ConfigMaps (404): see whether the kubeconfig names an API server", s.own)
	}
	return explain(err, s.own.String(), fmt.Sprintf("apply what `evenkeel-agent rbac %s --config-namespace=%s` prints, or config/configmap-source, which opens all of that namespace to every node",
		s.own.Node, s.own.Namespace))
}
