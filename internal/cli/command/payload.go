package command

import (
	"context"
	"fmt"
	"io"
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
			return nil, name, fmt.Errorf("read the configuration: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err = Interruptible(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(in, limit)) })
	if err != nil {
		return nil, name, fmt.Errorf("read the configuration from %s: %w", name, err)
	}
	return data, name, nil
}
