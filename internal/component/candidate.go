// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// Candidate is a configuration to check or to run.
type Candidate struct {
	Data   []byte // an upstream KubeletConfiguration, JSON or YAML
	Dropin bool   // merged over the local configuration through --config-dir
}

// RunConfig selects the configuration that a kubelet runs with. The zero value
// is the node's own --config and --config-dir.
type RunConfig struct {
	InitFile string // local configuration, if not the node's own --config and --config-dir
	Dir      string // directory with the rendered Files of a candidate; empty: the local configuration
	Dropin   bool   // see Candidate
}

// Names of a candidate's rendered files.
const (
	wholeFile     = "kubelet"
	dropinDir     = "kubelet.conf.d"
	payloadDropin = "evenkeel.conf" // sorts after the copies of the node's own drop-ins, which start with a digit
)

// Limits of the node's own drop-in directory, which is copied for each check
// and each start.
const (
	maxDropins     = 1000
	maxDropinBytes = 8 << 20 // total
)

// maxLocalBytes is the limit of the node's own configuration file. A larger
// file counts as unreadable.
const maxLocalBytes = 8 << 20

// Files returns the files to render for a candidate, for Argv: content by path,
// with slashes. For a drop-in they include copies of the node's own drop-ins,
// in the order in which the kubelet merges them. The error names the node's
// drop-in directory if it cannot be copied.
func (k *Kubelet) Files(c Candidate, initFile string) (map[string][]byte, error) {
	config, err := k.candidate(c, initFile)
	return config.files, err
}

// sources returns the --config and --config-dir of a run, or "".
func (k *Kubelet) sources(run RunConfig) (config, configDir string) {
	config, configDir = k.Config, k.ConfigDir
	if run.InitFile != "" {
		config, configDir = run.InitFile, ""
	}

	switch {
	case run.Dir == "":
	case run.Dropin:
		configDir = filepath.Join(run.Dir, dropinDir)
	default:
		config, configDir = filepath.Join(run.Dir, wholeFile), ""
	}

	return config, configDir
}

// configFlags returns the flags that select a configuration. The node's own
// flags of these names must be removed.
func (k *Kubelet) configFlags(run RunConfig) []string {
	var flags []string
	config, configDir := k.sources(run)
	if config != "" {
		flags = append(flags, "--config="+config)
	}
	if configDir != "" {
		flags = append(flags, "--config-dir="+configDir)
	}

	return flags
}

// configuration is the input of one kubelet run.
type configuration struct {
	run     RunConfig
	files   map[string][]byte       // content of run.Dir; nil for the local configuration
	payload func() (layer, error)   // the candidate, decoded once; nil for the local configuration
	layers  func() ([]layer, error) // all merged files, lowest precedence first, read and decoded once
}

// local returns the local configuration.
func (k *Kubelet) local(initFile string) configuration {
	run := RunConfig{InitFile: initFile}
	return configuration{run: run, layers: sync.OnceValues(func() ([]layer, error) { return k.localLayers(run) })}
}

// wholeConfig returns a configuration that replaces the local one.
func wholeConfig(data []byte) configuration {
	payload := sync.OnceValues(func() (layer, error) { return newLayer(data, OriginRemote) })
	return configuration{
		files:   map[string][]byte{wholeFile: data},
		payload: payload,
		layers: func() ([]layer, error) {
			l, err := payload()
			return []layer{l}, err
		},
	}
}

func (k *Kubelet) candidate(c Candidate, initFile string) (configuration, error) {
	if !c.Dropin {
		return wholeConfig(c.Data), nil
	}

	local := k.local(initFile)
	nodeFiles, err := k.nodeDropins(local.run)
	if err != nil {
		return configuration{}, err
	}

	files := map[string][]byte{dropinDir + "/" + payloadDropin: c.Data}
	for i, d := range nodeFiles {
		files[dropinDir+"/"+copyName(i, d.name)] = d.data
	}

	payload := sync.OnceValues(func() (layer, error) { return newLayer(c.Data, OriginDropin) })

	return configuration{
		run:     RunConfig{InitFile: initFile, Dropin: true},
		files:   files,
		payload: payload,
		layers: sync.OnceValues(func() ([]layer, error) {
			layers, err := local.layers()
			if err != nil {
				return nil, err
			}

			l, err := payload()

			return append(layers[:len(layers):len(layers)], l), err
		}),
	}, nil
}

// dropinFile is one file of the node's own drop-in directory.
type dropinFile struct {
	name string // relative to the directory, with slashes
	data []byte
}

// nodeDropins reads the node's own drop-in directory, if the local
// configuration has one, like the kubelet: files and links with the extension
// .conf, in the order of the walk, including subdirectories. It reports only
// errors of reading; the kubelet checks the content.
func (k *Kubelet) nodeDropins(local RunConfig) ([]dropinFile, error) {
	_, dir := k.sources(local)
	if dir == "" {
		return nil, nil
	}

	var files []dropinFile
	room := int64(maxDropinBytes)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(d.Name()) != ".conf" {
			return err
		}
		if len(files) == maxDropins {
			return fmt.Errorf("it has more than %d files", maxDropins)
		}

		data, err := atomicfile.ReadBounded(path, room)
		if err != nil {
			return err
		}

		room -= int64(len(data))
		name, err := filepath.Rel(dir, path)
		files = append(files, dropinFile{filepath.ToSlash(name), data})

		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the node's own drop-in directory %s: %w", dir, err)
	}

	return files, nil
}

// LocalDigest covers all files of the local configuration, and the errors of
// reading them. Different digests mean that the local configuration changed or
// may have changed. It never waits for a file, such as a pipe without a writer.
func (k *Kubelet) LocalDigest(initFile string) string {
	files, h := k.LocalFiles(initFile), sha256.New()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%q %s\n", path, files[path])
	}

	return hex.EncodeToString(h.Sum(nil))
}

// LocalFiles returns the digest of each file of the local configuration by its
// path, also if it cannot be read: then the digest is that of the error. Files
// that are missing are not returned. An unreadable drop-in directory counts as
// one file.
func (k *Kubelet) LocalFiles(initFile string) map[string]string {
	digests := map[string]string{}
	digest := func(data []byte, err error) string {
		sum := sha256.Sum256(fmt.Appendf(data, "\n%v", err))
		return hex.EncodeToString(sum[:])
	}
	local := RunConfig{InitFile: initFile}
	file, dir := k.sources(local)
	if file != "" {
		if data, err := atomicfile.ReadBounded(file, maxLocalBytes); !errors.Is(err, fs.ErrNotExist) {
			digests[file] = digest(data, err)
		}
	}

	nodeFiles, err := k.nodeDropins(local)
	if err != nil {
		digests[dir] = digest(nil, err)
	}

	for _, d := range nodeFiles {
		digests[filepath.Join(dir, filepath.FromSlash(d.name))] = digest(d.data, nil)
	}

	return digests
}

var unsafeChars = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// copyName returns a safe name that sorts by the number and shows which file
// was copied.
func copyName(number int, name string) string {
	const most = 100 // bytes
	name = unsafeChars.ReplaceAllString(strings.ReplaceAll(strings.TrimSuffix(name, ".conf"), "/", "-"), "_")
	return fmt.Sprintf("%03d-%.*s.conf", number, most, name)
}
