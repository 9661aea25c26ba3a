// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// maxRequest is how many bytes of the annotation evenkeel.dev/preflight are
// read. A request has about 500.
const maxRequest = 4096

// Preflight is a request in the node's NodeConfig: would the node adopt this
// configuration? It assigns nothing.
type Preflight struct {
	v1alpha1.PreflightRequest
	// Answered is the answer in the status of the NodeConfig if it is an answer
	// to this request.
	Answered *v1alpha1.PreflightAnswer
}

// preflightOf returns the request in a NodeConfig; nil if there is none that
// can be read. Without a UID it cannot be answered.
func preflightOf(nc *v1alpha1.NodeConfig) *Preflight {
	if nc == nil {
		return nil
	}

	text := nc.Annotations[v1alpha1.AnnotationPreflight]
	var p Preflight
	if text == "" || len(text) > maxRequest || json.Unmarshal([]byte(text), &p.PreflightRequest) != nil || p.UID == "" ||
		len(p.UID) > v1alpha1.MaxPreflightUID {
		return nil
	}

	if a := nc.Status.Preflight; a != nil && a.UID == p.UID {
		p.Answered = a.DeepCopy()
	}

	return &p
}

// Preflight returns the newest request; nil if there is none. Changed signals a
// new one.
func (s *NodeConfigSource) Preflight() *Preflight {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.preflight
}

// setPreflight keeps the request of a NodeConfig. The caller holds mu.
func (s *NodeConfigSource) setPreflight(p *Preflight) {
	was := ""
	if s.preflight != nil {
		was = s.preflight.UID
	}

	s.preflight = p
	if p != nil && p.UID != was {
		signal(s.changed)
	}
}

// PreflightPayload downloads the payload that a request names, and saves
// nothing. It retries until the API answers or ctx ends. A *payload.Error says
// that the node would reject the payload; other errors say why an assignment of
// it could not be carried out.
func (s *NodeConfigSource) PreflightPayload(ctx context.Context, ref v1alpha1.ConfigMapReference) (payload.Payload, error) {
	object := "ConfigMap " + ref.Namespace + "/" + ref.Name
	retry := newRetry(s.client, time.Minute)
	for {
		cm := &corev1.ConfigMap{}
		_, err := s.client.do(ctx, request{verb: "GET", gv: coreV1, namespace: ref.Namespace, resource: "configmaps", name: ref.Name}, cm)
		switch {
		case ctx.Err() != nil:
			return payload.Payload{}, ctx.Err()
		case apierrors.IsNotFound(err):
			return payload.Payload{}, fmt.Errorf("referenced %s not found", object)
		case err != nil:
			if !retry.wait(ctx, err, nil) {
				return payload.Payload{}, ctx.Err()
			}

			continue
		case cm.UID != ref.UID:
			return payload.Payload{}, fmt.Errorf("uid %s names another object than %s, whose uid is %s", ref.UID, object, cm.UID)
		}

		p, err := payload.FromConfigMap(cm)
		if err == nil && ref.SHA256 != "" && p.SHA256 != ref.SHA256 {
			return payload.Payload{}, fmt.Errorf("%s does not have the requested payload: its sha256 is %s, not %s", object, p.SHA256, ref.SHA256)
		}

		return p, err
	}
}
