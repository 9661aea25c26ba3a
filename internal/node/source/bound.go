// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// podsPerPage limits how many whole pods one answer contains, so that their encoded form does not take much memory.
const podsPerPage = 250

// Bound reads the Node, nil if it does not exist, and all pods that are bound to it, without their managed fields and annotations,
// except the annotation that marks a mirror pod.
func (w *NodeWatch) Bound(ctx context.Context) (*corev1.Node, []*corev1.Pod, error) {
	return w.client.bound(ctx, w.node)
}

func (c *Client) bound(ctx context.Context, name string) (*corev1.Node, []*corev1.Pod, error) {
	explain := func(err error) error {
		return errors.New(describeError(err, "the pods of node "+name, "nodes have this right by default; check the authorizers and RBAC"))
	}
	n := &corev1.Node{}
	read := make(chan error, 1)
	go func() { read <- c.whole(ctx, request{verb: "GET", gv: coreV1, resource: "nodes", name: name}, n) }()
	var pods []*corev1.Pod
	query := map[string]string{"fieldSelector": fields.OneTermEqualSelector("spec.nodeName", name).String(),
		"limit": strconv.Itoa(podsPerPage)}
	for more := true; more; {
		page := &corev1.PodList{}
		if err := c.whole(ctx, request{verb: "GET", gv: coreV1, resource: "pods", query: query}, page); err != nil {
			<-read
			return nil, nil, explain(err)
		}
		for i := range page.Items {
			p := page.Items[i]
			mirror, isMirror := p.Annotations[corev1.MirrorPodAnnotationKey]
			p.ManagedFields, p.Annotations = nil, nil
			if isMirror {
				p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: mirror}
			}
			pods = append(pods, &p)
		}
		query["continue"] = page.Continue
		more = page.Continue != ""
	}
	err := <-read
	if apierrors.IsNotFound(err) {
		return nil, pods, nil
	}
	if err != nil {
		return nil, nil, explain(err)
	}
	return n, pods, nil
}

// whole makes a request for objects with all their fields, in the encoding that is cheapest to decode.
func (c *Client) whole(ctx context.Context, r request, into runtime.Object) error {
	r.accept = runtime.ContentTypeProtobuf
	raw, err := c.do(ctx, r, nil)
	if err != nil {
		return err
	}
	if err := runtime.DecodeInto(wholeCodecs.UniversalDeserializer(), raw, into); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}
	return nil
}

// wholeCodecs decodes complete objects.
var wholeCodecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(coreV1, &corev1.Node{}, &corev1.Pod{}, &corev1.PodList{})
	return serializer.NewCodecFactory(scheme)
}()
