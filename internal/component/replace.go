// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// replacesMark begins the first line of a drop-in that replaces flags. The rest
// of the line has their arguments, as JSON.
const replacesMark = "# Replaces the kubelet's flags: "

// FlagsDropin returns the file with the drop-in of a conversion for
// ReplaceFlags. It names the removed flags.
func (c FlagConversion) FlagsDropin() ([]byte, error) {
	var removed []string
	for _, f := range c.Flags {
		if f.Removed {
			removed = append(removed, f.Args...)
		}
	}

	args, err := json.Marshal(removed)
	if err != nil {
		return nil, err
	}

	fields := c.Dropin
	if fields == nil {
		fields = emptyConfig(payload.UpstreamAPIVersion, payload.KubeletKind)
	}

	return slices.Concat([]byte(replacesMark), args, []byte("\n"), fields), nil
}

// ReplaceFlags returns the kubelet without the flags that a file of FlagsDropin
// replaces, and with the directory of the file as --config-dir. A flag whose
// arguments differ from those in the file stays, and overrides the file. The
// error says why the file cannot replace flags.
func (k *Kubelet) ReplaceFlags(file string) (*Kubelet, error) {
	data, err := atomicfile.ReadBounded(file, maxLocalBytes)
	if err != nil {
		return nil, err
	}

	line, _, _ := strings.Cut(string(data), "\n")
	text, ok := strings.CutPrefix(line, replacesMark)
	if !ok {
		return nil, errors.New("its first line does not name the flags that it replaces")
	}

	var args []string
	if err := json.Unmarshal([]byte(text), &args); err != nil {
		return nil, fmt.Errorf("its first line: %w", err)
	}

	replaced, err := parseFlags(args)
	if err != nil {
		return nil, fmt.Errorf("its first line: %w", err)
	}

	dir := filepath.Dir(file)
	if k.ConfigDir != "" && filepath.Clean(k.ConfigDir) != dir {
		return nil, fmt.Errorf("the kubelet reads its drop-ins from %s", k.ConfigDir)
	}

	argv := []string{k.Path}
	if k.ConfigDir == "" {
		argv = append(argv, "--config-dir="+dir)
	}

	for _, f := range k.flags {
		if !slices.Equal(only(k.flags, f.name), only(replaced, f.name)) {
			argv = append(argv, f.tokens...)
		}
	}

	return ParseKubelet(argv)
}
