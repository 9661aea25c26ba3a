// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package support collects what a maintainer needs to understand a problem of
// evenkeel in a cluster, as one archive: objects of the API, the report of
// internal/operator/doctor, and the controller's logs. Values that can be
// secret are masked.
//
// It must never request a Secret, write to the cluster, or hold more than one
// page of a kind in memory.
package support

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

// Options say what a bundle is about. All fields are required.
type Options struct {
	Program program.Info
	Context string // of the kubeconfig; for the manifest
	Dir     string // the directory in the archive
	Now     time.Time
	Most    int64 // the size of all entries in bytes, before compression
}

// MostBytes is the default size of all entries of a bundle, before compression.
const MostBytes = 256 << 20

// Contents describe a bundle.
type Contents struct {
	Headline string // of doctor's report; empty: there is no report
	Entries  []Entry
	Failures []Failure // what the bundle lacks
}

// Width returns the length of the longest name of an entry, in bytes.
func (c *Contents) Width() int {
	n := 0
	for _, e := range c.Entries {
		n = max(n, len(e.Name))
	}

	return n
}

// Entry is a file or a directory of an archive.
type Entry struct {
	Name  string
	What  string // in words, with the number of objects
	Bytes int64
}

// Failure is something that could not be collected.
type Failure struct {
	What string // a plural
	Why  string // one line
}

// ErrNothing is the error of Collect if the user may not read anything.
var ErrNothing = errors.New("nothing could be read")

// Collect writes a bundle to w. It returns an error if the API server cannot be
// reached, if nothing could be read (ErrNothing), or if writing fails; what
// could not be read otherwise is a failure in the contents, and in the bundle.
func Collect(ctx context.Context, c client.Reader, config *rest.Config, w io.Writer, o Options) (*Contents, error) {
	b := &bundle{reader: c, config: config, archive: newArchive(w, o.Dir, o.Now, o.Most), options: o, settings: fleet.DefaultSettings}
	for _, s := range sections {
		if err := s(ctx, b); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}

	if b.read == 0 {
		why := ""
		for _, f := range b.contents.Failures {
			why += "\n  " + f.What + ": " + f.Why
		}

		return nil, fmt.Errorf("%w:%s", ErrNothing, why)
	}

	manifest := Entry{Name: "MANIFEST.txt", What: "this list, and what could not be read"}
	if err := b.archive.write(manifest.Name, []byte(b.manifest())); err != nil {
		return nil, err
	}

	b.contents.Entries = append(b.contents.Entries, manifest)

	return &b.contents, b.archive.close()
}

// bundle is an archive that is being written.
type bundle struct {
	reader   client.Reader
	config   *rest.Config
	archive  *archive
	options  Options
	settings v1alpha1.RolloutController // of the controller
	contents Contents
	read     int // kinds of objects that could be read
}

// fail records what could not be read.
func (b *bundle) fail(what string, err error) {
	why := printable.Line(payload.MaskText(err.Error()))
	if errors.Is(err, errFull) {
		why = fmt.Sprintf("%v, %s before compression", errFull, size(b.options.Most))
	}

	b.contents.Failures = append(b.contents.Failures, Failure{what, why})
}

// add adds a file, unless the archive is full. An error means that writing
// failed.
func (b *bundle) add(name, what string, content []byte) error {
	switch err := b.archive.add(name, content); {
	case errors.Is(err, errFull):
		b.fail(what, err)
	case err != nil:
		return err
	default:
		b.contents.Entries = append(b.contents.Entries, Entry{name, what, int64(len(content))})
	}

	return nil
}

// addJSON adds a value as a file. Its text is masked, like that of objects.
func (b *bundle) addJSON(name, what string, value any) error {
	text, err := json.Marshal(value)
	var fields any
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err == nil {
		text, err = encode(mask("", fields))
	}
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}

	return b.add(name, what, append(printable.JSON(text), '\n'))
}

// unreachable reports whether an error is not an answer of the API server.
func unreachable(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status)
}

// size formats a number of bytes.
func size(n int64) string {
	switch {
	case n < 10<<10:
		return printable.Count(int(n), "byte")
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	}

	return fmt.Sprintf("%d MiB", n>>20)
}

// Masked says what a bundle does not contain.
const Masked = `It has no Secrets: none was requested. Masked are staticPodURL and its headers, values of
environment variables, tokens, passwords and keys, and the paths of URLs in command lines. Annotations
of other programs and addresses of nodes are left out. It does contain the names and labels of nodes,
your kubelet configurations, and messages and logs in which evenkeel may not recognize every secret.`

// manifest returns the list of what a bundle contains and lacks.
func (b *bundle) manifest() string {
	var out strings.Builder
	fmt.Fprintf(&out, "kubectl evenkeel support-bundle %s, context %s, %s\n\n", b.options.Program.Version, printable.Line(b.options.Context),
		b.options.Now.UTC().Format(time.RFC3339))
	for _, e := range b.contents.Entries {
		fmt.Fprintf(&out, "%-*s  %s, %s\n", b.contents.Width(), e.Name, e.What, size(e.Bytes))
	}

	if len(b.contents.Failures) > 0 {
		out.WriteString("\nCould not be read:\n")
		for _, f := range b.contents.Failures {
			fmt.Fprintf(&out, "%s: %s\n", f.What, f.Why)
		}
	}

	fmt.Fprintf(&out, "\n%s\n", Masked)

	return out.String()
}

// errFull means that the archive has reached its size.
var errFull = errors.New("the bundle has reached its maximum size")

// archive is a tar.gz file that is written entry by entry.
type archive struct {
	gzip *gzip.Writer
	tar  *tar.Writer
	dir  string // the directory of all entries
	time time.Time
	left int64 // bytes that may still be added, uncompressed
}

func newArchive(w io.Writer, dir string, now time.Time, most int64) *archive {
	z := gzip.NewWriter(w)
	return &archive{gzip: z, tar: tar.NewWriter(z), dir: dir, time: now, left: most}
}

// add adds a file. The error is errFull if there is no room for it.
func (a *archive) add(name string, content []byte) error {
	if int64(len(content)) > a.left {
		return errFull
	}

	a.left -= int64(len(content))

	return a.write(name, content)
}

// write adds a file regardless of the size.
func (a *archive) write(name string, content []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: a.dir + "/" + name, Size: int64(len(content)), Mode: 0o600,
		ModTime: a.time.Truncate(time.Second), Format: tar.FormatPAX}
	if err := a.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	if _, err := a.tar.Write(content); err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}

	return nil
}

func (a *archive) close() error { return errors.Join(a.tar.Close(), a.gzip.Close()) }

// page collects objects until they fill an entry.
type page struct {
	content []byte
	objects int
}

const (
	pageObjects = 500
	pageBytes   = 8 << 20
)

func (p *page) full() bool { return p.objects >= pageObjects || len(p.content) >= pageBytes }

// add adds an object to a JSON list.
func (p *page) add(object any) error {
	text, err := encode(object)
	if err != nil {
		return err
	}

	if p.objects == 0 {
		p.content = append(p.content, `{"apiVersion": "v1", "kind": "List", "items": [`...)
	} else {
		p.content = append(p.content, ',')
	}

	p.content = append(append(p.content, '\n'), printable.JSON(text)...)
	p.objects++

	return nil
}

// end returns the entry and empties the page.
func (p *page) end() []byte {
	content := append(p.content, "\n]}\n"...)
	p.content, p.objects = nil, 0
	return content
}
