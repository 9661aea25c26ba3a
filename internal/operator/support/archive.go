// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/evenkeel/evenkeel/internal/printable"
)

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
