// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// ReadFile returns the content of a file, or of standard input if file is "-",
// and the name of the file for messages. It returns an error for content of
// more than limit bytes, which are a number of MiB.
func (e *Env) ReadFile(ctx context.Context, file string, limit int64) (data []byte, name string, err error) {
	if name = file; file == "-" {
		name = "standard input"
	}

	data, err = Interruptible(ctx, func() ([]byte, error) { // opening a pipe blocks, too
		in := e.In
		if file != "-" {
			f, err := os.Open(file)
			if err != nil {
				return nil, unreadable(file, err)
			}

			defer f.Close()
			in = f
		}

		data, err := io.ReadAll(io.LimitReader(in, limit+1))
		if err != nil && file != "-" {
			err = unreadable(file, err)
		}

		return data, err
	})
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d MiB, which is the limit: it was not used; use a smaller file", name, limit>>20)
	}
	if err != nil {
		return nil, name, err
	}

	return data, name, nil
}

// ReadPayload reads a kubelet configuration, which is partial if dropIn is
// true, and checks the types of its fields.
func (e *Env) ReadPayload(ctx context.Context, file string, dropIn bool, nothing string) (payload.Payload, error) {
	data, _, err := e.ReadFile(ctx, file, payload.MaxSize)
	if err != nil {
		return payload.Payload{}, err
	}

	key := payload.KeyKubelet
	if dropIn {
		key = payload.KeyKubeletDropin
	}

	p, err := payload.Decode(key, data)
	if err == nil {
		err = e.CheckFields(p)
	}
	if err != nil {
		return payload.Payload{}, Unusable(file, err, nothing)
	}

	return p, nil
}

// unreadable returns the error for a file that cannot be read.
func unreadable(file string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("file %s does not exist: correct its name; - means standard input", file)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("file %s cannot be read, because you lack the permission: correct its mode or owner (ls -l %[1]s), or pipe it into "+
			"-f -", file)
	}

	if info, statErr := os.Stat(file); statErr == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory: use one file in it", file)
	}

	return fmt.Errorf("file %s cannot be read: %w; use a regular file, or pipe the content into -f -", file, cause(err))
}

// cause returns the error of the system, without the operation and the path.
func cause(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}

	return err
}

// Unusable returns the error for a file that holds no configuration that can be
// used. nothing says what was not done.
func Unusable(file string, err error, nothing string) error {
	if file == "-" {
		file = "standard input"
	}

	return fmt.Errorf("%s: %w; nothing was %s\ncorrect the configuration, and run the command again", file, err, nothing)
}

// selectorHelp says what --selector takes.
const selectorHelp = "use labels, such as pool=workers, zone!=a, 'tier in (a,b)', or several with commas"

// ParseSelector reads the value of --selector.
func ParseSelector(text string) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--selector %q: %w: %s", text, err, selectorHelp)
	}

	return selector, nil
}

// ParseSelection reads the values of --selector and --all-nodes, one of which
// is needed. given reports whether --selector was given: an empty value can be
// a variable that was forgotten, so it never means all nodes.
func ParseSelection(selector string, given, allNodes bool) (none v1alpha1.NodeSelection, err error) {
	parsed, err := metav1.ParseToLabelSelector(selector)
	switch {
	case given && allNodes:
		return none, errors.New("--selector and --all-nodes cannot be used together: omit one of them")
	case allNodes:
		return v1alpha1.NodeSelection{AllNodes: true}, nil
	case !given:
		return none, errors.New("use --selector to choose the nodes, or --all-nodes for every node")
	case err != nil:
		return none, fmt.Errorf("--selector: %w: %s", err, selectorHelp)
	case len(parsed.MatchLabels)+len(parsed.MatchExpressions) == 0:
		return none, errors.New("--selector is empty: use labels, or --all-nodes for every node")
	}

	return v1alpha1.NodeSelection{NodeSelector: v1alpha1.Selector(*parsed)}, nil
}
