package component

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// StateConflict is a state file of the kubelet that belongs to another policy. The kubelet would exit because of it.
type StateConflict struct {
	File       string // absolute path
	Field      string // field of the policy, such as cpuManagerPolicy
	FilePolicy string // policy in the file
	Policy     string // policy in the configuration
}

func (c StateConflict) String() string {
	return fmt.Sprintf("%s is %q but %s was written by %q", c.Field, c.Policy, c.File, c.FilePolicy)
}

// stateFiles are the kubelet's state files under --root-dir, with the field of the policy and its default.
var stateFiles = []struct{ file, field, standard string }{
	{"cpu_manager_state", "cpuManagerPolicy", "none"},
	{"memory_manager_state", "memoryManagerPolicy", "None"},
}

// StateConflicts returns the state files under --root-dir that conflict with an effective configuration. A missing
// file is no conflict; an unreadable file is an error.
func (k *Kubelet) StateConflicts(eff Effective) ([]StateConflict, error) {
	var conflicts []StateConflict
	var errs []error
	for _, s := range stateFiles {
		file := filepath.Join(k.RootDir, s.file)
		data, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		var state struct {
			PolicyName string `json:"policyName"`
		}
		if err == nil {
			err = json.Unmarshal(data, &state)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("state file %s: %w", file, err))
			continue
		}
		policy := eff.String(s.field)
		if policy == "" {
			policy = s.standard
		}
		if state.PolicyName != policy {
			conflicts = append(conflicts, StateConflict{File: file, Field: s.field, FilePolicy: state.PolicyName, Policy: policy})
		}
	}
	return conflicts, errors.Join(errs...)
}

// MoveAside renames the files of conflicts to <name>.evenkeel-<time>, durably, and returns the new names. It never
// deletes or overwrites a file and skips missing files. After an error, the returned files have been moved.
func MoveAside(conflicts []StateConflict, now time.Time) ([]string, error) {
	var moved []string
	for _, c := range conflicts {
		to, err := moveAside(c.File, c.File+".evenkeel-"+now.UTC().Format("20060102T150405Z"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if to != "" {
			moved = append(moved, to)
		}
		if err != nil {
			return moved, fmt.Errorf("could not move the state file %s aside: %w", c.File, err)
		}
	}
	return moved, nil
}

func moveAside(from, to string) (string, error) {
	const most = 100 // within one second; more means that something else is wrong
	for n := 0; n < most; n++ {
		name := to
		if n > 0 {
			name = fmt.Sprintf("%s-%d", to, n)
		}
		err := renameNew(from, name)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		return name, atomicfile.OS{}.SyncDir(filepath.Dir(from))
	}
	return "", fmt.Errorf("%s to %s-%d exist already", to, to, most-1)
}
