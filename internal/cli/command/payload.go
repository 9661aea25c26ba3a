package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ReadFile returns at most limit bytes of a file, or of standard input if file is "-", and the name of the file for messages.
func (e *Env) ReadFile(ctx context.Context, file string, limit int64) (data []byte, name string, err error) {
	in, name := e.In, file
	if file == "-" {
		name = "standard input"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return nil, name, unreadable(file, err)
		}
		defer f.Close()
		in = f
	}
	data, err = Interruptible(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(in, limit)) })
	if err != nil && file != "-" {
		err = unreadable(file, err)
	}
	return data, name, err
}

// unreadable returns the error for a file that cannot be read.
func unreadable(file string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("file %s does not exist: correct its name; - means standard input", file)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("file %s cannot be read, because you lack the permission: correct its mode or owner (ls -l %[1]s), or pipe it into -f -", file)
	}
	if info, statErr := os.Stat(file); statErr == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory: use one file in it", file)
	}
	return fmt.Errorf("file %s cannot be read: %w; use a regular file, or pipe the content into -f -", file, cause(err))
}

// cause returns the error of the system, without the operation and the path.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
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
