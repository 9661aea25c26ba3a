package component

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// Candidate is a configuration to be judged or run.
type Candidate struct {
	Data   []byte // an upstream KubeletConfiguration, JSON or YAML
	Dropin bool   // it is laid over the local configuration, through --config-dir
}

// Run says what configuration a kubelet is run with. The zero value is the node's own --config and --config-dir.
type Run struct {
	InitFile string // the local configuration, if it is not the node's own --config and --config-dir
	Dir      string // where a candidate's Files were rendered; empty: the local configuration
	Dropin   bool   // as the candidate has it
}

// What a candidate is rendered as.
const (
	wholeFile = "kubelet"
	dropinDir = "kubelet.conf.d"
	ourDropin = "evenkeel.conf" // after every copy of the node's own, whose names begin with a digit
)

// Bounds of the node's own drop-in directory. Its files are copied at each check and each start.
const (
	maxDropins     = 1000
	maxDropinBytes = 8 << 20 // in all
)

// Files returns what a candidate is to be rendered as, for Argv: contents by name, with slashes for directories. Under a
// drop-in lie copies of the node's own, which merge in the order in which the kubelet merges the originals. The error
// names the drop-in directory of the node that cannot be copied.
func (k *Kubelet) Files(c Candidate, initFile string) (map[string][]byte, error) {
	s, err := k.candidate(c, initFile)
	return s.files, err
}

// sources returns the --config and --config-dir of a run; "" for none.
func (k *Kubelet) sources(run Run) (config, configDir string) {
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

// configFlags returns the flags that make a kubelet run with a configuration. The node's own must not come along.
func (k *Kubelet) configFlags(run Run) []string {
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

// setup is all that there is to a run of the kubelet with one configuration.
type setup struct {
	run     Run
	files   map[string][]byte       // what run.Dir is to hold; nil for the local configuration
	payload func() (layer, error)   // the candidate itself, decoded once; nil for the local configuration
	layers  func() ([]layer, error) // all that the kubelet merges, bottom up, read and decoded once
}

// local is the setup of the local configuration.
func (k *Kubelet) local(initFile string) setup {
	run := Run{InitFile: initFile}
	return setup{run: run, layers: sync.OnceValues(func() ([]layer, error) { return k.localLayers(run) })}
}

// whole is the setup of a configuration that replaces the local one.
func whole(data []byte) setup {
	payload := sync.OnceValues(func() (layer, error) { return newLayer(data, OriginRemote) })
	return setup{
		files:   map[string][]byte{wholeFile: data},
		payload: payload,
		layers: func() ([]layer, error) {
			l, err := payload()
			return []layer{l}, err
		},
	}
}

func (k *Kubelet) candidate(c Candidate, initFile string) (setup, error) {
	if !c.Dropin {
		return whole(c.Data), nil
	}
	local := k.local(initFile)
	own, err := k.ownDropins(local.run)
	if err != nil {
		return setup{}, err
	}
	files := map[string][]byte{dropinDir + "/" + ourDropin: c.Data}
	for i, d := range own {
		files[dropinDir+"/"+copyName(i, d.name)] = d.data
	}
	payload := sync.OnceValues(func() (layer, error) { return newLayer(c.Data, OriginDropin) })
	return setup{
		run:     Run{InitFile: initFile, Dropin: true},
		files:   files,
		payload: payload,
		layers: sync.OnceValues(func() ([]layer, error) {
			under, err := local.layers()
			if err != nil {
				return nil, err
			}
			l, err := payload()
			return append(under[:len(under):len(under)], l), err
		}),
	}, nil
}

// dropin is one file of the node's own drop-in directory.
type dropin struct {
	name string // in the directory, with slashes
	data []byte
}

// ownDropins reads the node's own drop-in directory, if its local configuration has one, as the kubelet does: every
// file and link whose name ends in .conf, in the order of the walk, subdirectories too. What is wrong with a file is for
// the kubelet to say, but for what would keep us from reading it.
func (k *Kubelet) ownDropins(local Run) ([]dropin, error) {
	_, dir := k.sources(local)
	if dir == "" {
		return nil, nil
	}
	var own []dropin
	room := int64(maxDropinBytes)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(d.Name()) != ".conf" {
			return err
		}
		if len(own) == maxDropins {
			return fmt.Errorf("there are more than %d files", maxDropins)
		}
		data, err := readBounded(path, room)
		if err != nil {
			return err
		}
		room -= int64(len(data))
		name, err := filepath.Rel(dir, path)
		own = append(own, dropin{filepath.ToSlash(name), data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the node's own drop-in directory %s: %w", dir, err)
	}
	return own, nil
}

// LocalDigest is over all that the local configuration is read from, what cannot be read included. Two that are not the
// same mean that it has changed, or may have.
func (k *Kubelet) LocalDigest(initFile string) string {
	h := sha256.New()
	local := Run{InitFile: initFile}
	if file, _ := k.sources(local); file != "" {
		data, err := os.ReadFile(file)
		fmt.Fprintf(h, "%s %d %v\n%s", file, len(data), err, data)
	}
	own, err := k.ownDropins(local)
	fmt.Fprintf(h, "%d %v\n", len(own), err)
	for _, d := range own {
		fmt.Fprintf(h, "%q %d\n%s", d.name, len(d.data), d.data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// readBounded reads a regular file, or what a link to one leads to.
func readBounded(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > most:
		return nil, fmt.Errorf("%s is too large: at most %d bytes are read", path, most)
	}
	return os.ReadFile(path)
}

var notSafe = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// copyName is a safe name that sorts by the number and tells which file it is a copy of.
func copyName(number int, name string) string {
	const most = 100 // bytes
	name = notSafe.ReplaceAllString(strings.ReplaceAll(strings.TrimSuffix(name, ".conf"), "/", "-"), "_")
	return fmt.Sprintf("%03d-%.*s.conf", number, most, name)
}
