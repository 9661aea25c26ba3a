// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"errors"
	"testing"

	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

// A file set aside survives a power cut: people inspect it, and the node must
// not read the corrupt file again.
func TestFilesSetAsideSurviveAPowerCut(t *testing.T) {
	for name, meet := range map[string]func(*testing.T, *checkpoint.Store){
		"checkpoints/uid-b": func(t *testing.T, s *checkpoint.Store) {
			_, err := s.Get(config("uid-b", "b"))
			assert.Must(t, errors.Is(err, checkpoint.ErrCorrupt), "Get: %v", err)
		},
		"current": func(t *testing.T, s *checkpoint.Store) {
			_, problems := s.Load()
			assert.Must(t, len(problems) == 1 && problems[0].SetAside != "", "Load: %v", problems)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fsys, _ := saved(t, full())
			fsys.Plant(dir+"/"+name, []byte("{"))
			meet(t, open(t, fsys))
			for choice, choose := range crashfs.Choices {
				after := fsys.Reboot(choose)
				if exists(after, name) || !exists(after, name+".corrupt") {
					t.Errorf("%s: %s is there: %t, set aside: %t", choice, name, exists(after, name), exists(after, name+".corrupt"))
				}
			}
		})
	}
}
