// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// many is an API server with so many Nodes, which fails at the page that begins
// with one of them.
type many struct {
	client.Reader
	nodes, failing int
	largest        int // objects in one answer
}

var errGone = errors.New("the continue token has expired")

func (m *many) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := &client.ListOptions{}
	o.ApplyOptions(options)
	begin, _ := strconv.Atoi(o.Continue)
	if m.failing > 0 && begin >= m.failing {
		return errGone
	}

	end := min(begin+int(o.Limit), m.nodes)
	m.largest = max(m.largest, end-begin)
	out := list.(*unstructured.UnstructuredList)
	for i := begin; i < end; i++ {
		out.Items = append(out.Items, unstructured.Unstructured{Object: map[string]any{"kind": "Node", "metadata": map[string]any{"name": fmt.Sprintf("n%05d", i)}}})
	}
	if end < m.nodes {
		out.SetContinue(strconv.Itoa(end))
	}

	return nil
}

// collected lists Nodes into an archive of at most so many bytes, and returns
// the bundle and its files.
func collected(t *testing.T, reader client.Reader, most int64) (*bundle, map[string]string, []byte) {
	t.Helper()
	var out bytes.Buffer
	o := Options{Dir: "dir", Now: time.Unix(1e9, 0), Most: most}
	b := &bundle{reader: reader, archive: newArchive(&out, o.Dir, o.Now, o.Most), options: o}
	assert.NoError(t, b.list(t.Context(), kind{corev1.SchemeGroupVersion.WithKind("Node"), "nodes", maskNode}))
	assert.NoError(t, b.archive.close())
	archive := slices.Clone(out.Bytes())
	z := assert.Value(gzip.NewReader(&out))(t)
	files := map[string]string{}
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return b, files, archive
		}

		assert.NoError(t, err)
		files[h.Name] = string(assert.Value(io.ReadAll(in))(t))
		assert.Equal(t, h.Mode, 0o600, h.Name, "has mode")
	}
}

// items returns the names of the objects in an entry.
func items(t *testing.T, text string) []string {
	t.Helper()
	var list struct {
		Kind  string
		Items []struct{ Metadata struct{ Name string } }
	}
	err := json.Unmarshal([]byte(text), &list)
	assert.Must(t, err == nil && list.Kind == "List", "%v: %.200s", err, text)
	var names []string
	for _, i := range list.Items {
		names = append(names, i.Metadata.Name)
	}

	return names
}

func TestObjectsAreWrittenPageByPageInOrder(t *testing.T) {
	api := &many{nodes: 1234}
	b, files, archive := collected(t, api, MostBytes)
	var names []string
	for i := range len(files) {
		names = append(names, items(t, files[fmt.Sprintf("dir/nodes/%d.json", i+1)])...)
	}

	assert.That(t, len(files) == 3 && len(names) == 1234 && slices.IsSorted(names) && api.largest <= pageObjects,
		"%d files with %d nodes, in answers of at most %d", len(files), len(names), api.largest)
	entries := b.contents.Entries
	assert.That(t, len(b.contents.Failures) == 0 && len(entries) == 1 && entries[0].What == "1234 Nodes" && entries[0].Bytes != 0,
		"contents %+v", b.contents)
	_, _, again := collected(t, api, MostBytes)
	assert.That(t, bytes.Equal(archive, again), "the same cluster has another archive")
}

func TestABundleThatIsFullSaysWhatItLacks(t *testing.T) {
	_, files, _ := collected(t, &many{nodes: 500}, MostBytes)
	one := int64(len(files["dir/nodes/1.json"]))
	b, files, _ := collected(t, &many{nodes: 1234}, 2*one+one/10)
	assert.That(t, len(files) == 2 && b.contents.Entries[0].What == "1000 Nodes", "%d files; contents %+v", len(files), b.contents)
	want := Failure{"Nodes after the first 1000", "the bundle has reached its maximum size, " + size(2*one+one/10) + " before compression"}
	assert.That(t, slices.Equal(b.contents.Failures, []Failure{want}), "failures %q, want %q", b.contents.Failures, want)
	m := b.manifest()
	assert.That(t, strings.Contains(m, want.What+": "+want.Why), "manifest:\n%s", m)
	// One entry is added as a whole or not at all.
	err := b.add("large.txt", "something large", make([]byte, one))
	assert.That(t, err == nil && b.contents.Failures[1].What == "something large", "%v; failures %q", err, b.contents.Failures)
}

func TestAListThatFailsInTheMiddleIsKeptUpToThere(t *testing.T) {
	b, files, _ := collected(t, &many{nodes: 1234, failing: 1000}, MostBytes)
	assert.That(t, len(files) == 2 && slices.Equal(b.contents.Failures, []Failure{{"Nodes after the first 1000", errGone.Error()}}),
		"%d files, failures %q", len(files), b.contents.Failures)
}

func TestAnAPIServerThatCannotBeReachedIsNoBundle(t *testing.T) {
	_, err := Collect(t.Context(), &many{}, &rest.Config{Host: "http://127.0.0.1:1"}, io.Discard, Options{Most: MostBytes})
	assert.That(t, err != nil && !errors.Is(err, ErrNothing) && strings.Contains(err.Error(), "read the version of the API server: "), "%v", err)
}

func TestTheNewestLinesOfALogAreKept(t *testing.T) {
	line := func(n int) string { return fmt.Sprintf("line %07d %s\n", n, strings.Repeat("x", 100)) }
	for _, tt := range []struct{ lines, first int }{{0, 0}, {10, 0}, {logBytes/len(line(0)) - 1, 0}, {200_000, -1}} {
		var text strings.Builder
		for i := range tt.lines {
			text.WriteString(line(i))
		}

		got, err := newest(t.Context(), func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(text.String())), nil
		})
		assert.Must(t, err == nil && strings.HasSuffix(text.String(), string(got)) && len(got) <= logBytes,
			"of %d lines: %d bytes, %v", tt.lines, len(got), err)
		assert.That(t, tt.first != 0 || len(got) == text.Len(), "of %d lines: %d bytes, want all %d", tt.lines, len(got), text.Len())
		assert.That(t, tt.first >= 0 || strings.HasPrefix(string(got), "line ") && len(got) >= logBytes-200,
			"of %d lines: %d bytes, which begin with %.30q", tt.lines, len(got), got)
	}

	broken := errors.New("the connection broke")
	if got, err := newest(t.Context(), func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("a"), iotest.ErrReader(broken))), nil
	}); !errors.Is(err, broken) || string(got) != "a" {
		t.Errorf("of a stream that breaks: %q, %v", got, err)
	}
}
