// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// maxClientCA limits the size of a client CA file, in bytes. The largest
// bundles have some hundred kilobytes.
const maxClientCA = 4 << 20

const clientCAField = "authentication.x509.clientCAFile"

// checkClientCA checks the client CA files of a candidate before any run: up to
// 1.35 a kubelet opens the file, of whatever type, in stage 1, and from 1.36
// stage 2 does not use it. final is false if the check continues, because the
// files equal the local configuration's or are usable.
func (c *check) checkClientCA() (v Verdict, final bool) {
	if _, given := last(c.h.k.flags, "client-ca-file"); given {
		return Verdict{}, false // the kubelet uses this file instead
	}

	files := c.clientCAs()
	if len(files) == 0 {
		return Verdict{}, false
	}

	local, err := c.localClientCA()
	if err != nil && !c.h.Protected.Empty() {
		return Verdict{Outcome: Accepted, Message: oneLine("the client CA file cannot be compared with that of the local configuration: " +
			err.Error())}, true
	}

	for _, name := range files {
		if filepath.Clean(name) == local {
			continue
		}

		fields := func(file string) map[string]any {
			return map[string]any{"authentication": map[string]any{"x509": map[string]any{"clientCAFile": file}}}
		}
		if violations := c.h.Protected.Violations(fields(name), fields(local), nil); len(violations) > 0 {
			return Verdict{Outcome: Accepted, Violations: violations}, true
		}

		if v := usableClientCA(name); v.Outcome != Accepted {
			v.Message = oneLine(clientCAField + ": " + v.Message)
			return v, true
		}
	}

	return Verdict{}, false
}

// localClientCA returns the client CA file of the local configuration, or "".
// The kubelet resolves a relative path against the directory of its
// configuration file.
func (c *check) localClientCA() (string, error) {
	layers, err := c.local.layers()
	if err != nil {
		return "", err
	}

	value, _ := lookupLayers(layers, splitPath(clientCAField))
	file, _ := value.(string)
	if file == "" {
		return "", nil
	}
	if config, _ := c.h.k.sources(c.local.run); !filepath.IsAbs(file) && config != "" {
		file = filepath.Join(filepath.Dir(config), file)
	}

	return filepath.Clean(file), nil
}

// clientCAs returns the client CA files that the candidate names. In a drop-in
// the field name matches in any case, as in the kubelet. For undecodable data
// it returns none: the kubelet rejects it before it opens a file.
func (c *check) clientCAs() []string {
	l, err := c.candidate.payload()
	if err != nil {
		return nil
	}

	var files []string
	for path, value := range payload.Lookup(l.fields, strings.Split(clientCAField, ".")) {
		if file, _ := value.(string); file != "" && (path == clientCAField || c.candidate.run.Dropin) {
			files = append(files, file)
		}
	}

	return files
}

// clientCATimeout limits reading a client CA file.
const clientCATimeout = 5 * time.Second

// usableClientCA checks whether a file can be a client CA file: Rejected if
// not, CouldNotTell if it cannot be read now. The words say what is wrong.
func usableClientCA(file string) Verdict {
	done := make(chan Verdict, 1)
	go func() { done <- readClientCA(file) }()
	select {
	case v := <-done:
		return v
	case <-time.After(clientCATimeout):
		return Verdict{Outcome: CouldNotTell, Message: file + " cannot be read within " + clientCATimeout.String()}
	}
}

func readClientCA(file string) Verdict {
	// Opening a device can have side effects. Most files of /proc are empty,
	// and some block their readers.
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Verdict{Outcome: Rejected, Message: file + " does not exist"}
	case err != nil:
		return Verdict{Outcome: CouldNotTell, Message: err.Error()}
	case !info.Mode().IsRegular():
		return Verdict{Outcome: Rejected, Message: file + " is not a regular file"}
	case info.Size() == 0:
		return Verdict{Outcome: Rejected, Message: file + " is empty"}
	case info.Size() > maxClientCA:
		return Verdict{Outcome: Rejected, Message: fmt.Sprintf("%s is larger than the limit of %d bytes", file, maxClientCA)}
	}

	data, err := atomicfile.ReadBounded(file, maxClientCA)
	switch {
	case err != nil:
		return Verdict{Outcome: CouldNotTell, Message: err.Error()}
	case !x509.NewCertPool().AppendCertsFromPEM(data):
		return Verdict{Outcome: Rejected, Message: file + " contains no certificate"}
	}

	return Verdict{Outcome: Accepted}
}
