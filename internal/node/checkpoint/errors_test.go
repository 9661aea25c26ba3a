// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"syscall"
	"testing"

	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

// Repeated errors must have the same text: otherwise the node would write its
// status each time.
func TestErrorsOfRepeatedCallsAreEqual(t *testing.T) {
	for what, try := range map[string]func(fsys *crashfs.FS) error{
		"save": func(fsys *crashfs.FS) error { return open(t, fsys).Save(full()) },
		"put": func(fsys *crashfs.FS) error {
			_, err := open(t, fsys).Put("uid-n", configMap("uid-n", "p"))
			return err
		},
		"render": func(fsys *crashfs.FS) error {
			_, err := open(t, fsys).Render("uid-n", map[string][]byte{"kubelet.conf.d/a": []byte("1"), "kubelet.conf.d/b": []byte("2")})
			return err
		},
	} {
		for _, op := range []crashfs.Op{crashfs.Create, crashfs.Write, crashfs.Sync, crashfs.Close, crashfs.Mkdir, crashfs.Rename, crashfs.Chmod, crashfs.SyncDir} {
			for _, first := range []trial.State{{}, full()} {
				fsys := crashfs.New()
				assert.NoError(t, open(t, fsys).Save(first))

				fsys.FailFrom(1, syscall.ENOSPC, op)
				_ = try(fsys) // it may have got somewhere
				one, two := try(fsys), try(fsys)
				assert.That(t, (one == nil) == (two == nil) && (one == nil || one.Error() == two.Error()),
					"%s, %s fails:\n%v\n%v", what, op, one, two)
			}
		}
	}
}
