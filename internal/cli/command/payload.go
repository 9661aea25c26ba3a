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

	"github.com/evenkeel/evenkeel/internal/payload"
)

// ReadFile returns the content of a file, or of standard input if file is "-", and the name of the file for messages. It returns an
// error for content of more than limit bytes, which are a number of MiB.
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

// ReadPayload reads a kubelet configuration, which is partial if dropIn is true, and checks the types of its fields.
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

// Unusable returns the error for a file that holds no configuration that can be used. nothing says what was not done.
func Unusable(file string, err error, nothing string) error {
	if file == "-" {
		file = "standard input"
	}
	return fmt.Errorf("%s: %w; nothing was %s\ncorrect the configuration, and run the command again", file, err, nothing)
}

// SelectorHelp says what --selector takes.
const SelectorHelp = "use labels, such as pool=workers, zone!=a, 'tier in (a,b)', or several with commas"
