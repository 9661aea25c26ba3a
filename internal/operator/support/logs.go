// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

const (
	logLines   = 20_000           // the newest lines that are requested of a container
	logBytes   = 4 << 20          // the newest bytes of a log that a bundle contains
	logTimeout = 30 * time.Second // for one log: the kubelet of its node may not answer
)

// controllerName is the label app.kubernetes.io/name of the controller's pods.
const controllerName = "evenkeel-controller"

// logs adds the end of the logs of the controller's containers, also of those
// before their last restart.
func logs(ctx context.Context, b *bundle) error {
	api, err := typedcorev1.NewForConfig(b.config)
	if err != nil {
		return err
	}

	namespace := b.settings.Namespace
	for pod, err := range query.Pages[*corev1.Pod](ctx, b.reader, &corev1.PodList{}, client.InNamespace(namespace),
		client.MatchingLabels{"app.kubernetes.io/name": controllerName}) {
		if err != nil {
			b.fail("the logs of the controller", err)
			return nil
		}

		for _, s := range pod.Status.ContainerStatuses {
			for _, previous := range []bool{false, true} {
				if previous && s.RestartCount == 0 {
					continue
				}

				name, what := pod.Name+"-"+s.Name, fmt.Sprintf("the log of container %s of pod %s", s.Name, pod.Name)
				if previous {
					name, what = name+"-previous", what+" before its last restart"
				}

				lines := int64(logLines)
				o := &corev1.PodLogOptions{Container: s.Name, Previous: previous, TailLines: &lines}
				text, err := newest(ctx, func(ctx context.Context) (io.ReadCloser, error) {
					return api.Pods(namespace).GetLogs(pod.Name, o).Stream(ctx)
				})
				if err != nil {
					b.fail(what, err)
				}
				if err != nil && len(text) == 0 {
					continue
				}
				if err := b.add("logs/"+name+".txt", what, []byte(printable.Text(payload.MaskText(string(text))))); err != nil {
					return err
				}
			}
		}
	}

	return nil
}

// newest returns the last bytes of a stream, from the beginning of a line.
// Beside an error it returns what was read before it.
func newest(ctx context.Context, open func(context.Context) (io.ReadCloser, error)) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	stream, err := open(ctx)
	if err != nil {
		return nil, err
	}

	defer stream.Close()
	var kept []byte
	for buffer := make([]byte, 64<<10); err == nil; {
		var n int
		n, err = stream.Read(buffer)
		if kept = append(kept, buffer[:n]...); len(kept) > 2*logBytes {
			kept = slices.Clone(kept[len(kept)-logBytes-1:]) // one byte too many, to see below that lines are missing
		}
	}

	if err == io.EOF {
		err = nil
	}

	if cut := len(kept) - logBytes; cut > 0 {
		kept = kept[cut:]
		kept = kept[bytes.IndexByte(kept, '\n')+1:]
	}

	return kept, err
}
