// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// diskBench measures the checkpoint of a configuration on disk. The floor is writing the same bytes with the same fsyncs.
func diskBench(ctx context.Context) (err error) {
	defer must.Catch(&err)

	const rounds = 60
	dir := must.Get(os.MkdirTemp(".", "bench-disk-")) // not a tmpfs
	defer os.RemoveAll(dir)
	store := must.Get(checkpoint.Open(atomicfile.OS{}, filepath.Join(dir, "state"), "v1.36.3", slog.New(slog.DiscardHandler)))
	if _, problems := store.Load(); len(problems) > 0 {
		return fmt.Errorf("a fresh directory has problems: %v", problems)
	}
	object := []byte(`{"data":{"kubelet":"` + strings.Repeat("x", 4<<10) + `"}}`)
	hand := filepath.Join(dir, "hand")
	must.OK(os.Mkdir(hand, 0o700))
	var ours, theirs []time.Duration
	for i := range rounds {
		must.OK(ctx.Err())
		begin := time.Now()
		files := must.Get(adopt(store, filepath.Join(dir, "state"), i, object))
		ours = append(ours, time.Since(begin))
		contents := must.Get(read(files))
		begin = time.Now()
		for name, data := range contents {
			must.OK(replace(hand, filepath.Base(name), data))
		}
		theirs = append(theirs, time.Since(begin))
	}
	figure, floor := figures.Median(ours), figures.Median(theirs)
	ratio := figure.Seconds() / floor.Seconds()
	figures.PrintRow("checkpoint and adopt on disk", fmt.Sprintf("%.2f ms", figure.Seconds()*1000), fmt.Sprintf("%.2f ms", floor.Seconds()*1000),
		fmt.Sprintf("1.5 x (is %.2f x)", ratio), ratio <= 1.5)
	return nil
}

// adopt checkpoints and adopts a configuration, and returns the files that it writes.
func adopt(store *checkpoint.Store, dir string, i int, object []byte) (_ []string, err error) {
	defer must.Catch(&err)

	revision := fmt.Sprintf("revision-%d", i)
	sum := must.Get(store.Put(revision, object))
	now := time.Unix(int64(1700000000+i), 0).UTC()
	err = store.Save(trial.State{
		Current:  trial.AdoptedConfig{Config: trial.Config{ConfigRevision: v1alpha1.ConfigRevision{Revision: revision, Namespace: "a", Name: "b", UID: types.UID(revision), SHA256: sum}, Checkpoint: sum}, Since: now},
		Startups: []time.Time{now},
		Trial:    &trial.Trial{Revision: revision, StartTime: now, BootID: "boot"},
	})
	return []string{
		filepath.Join(dir, "checkpoints", revision), filepath.Join(dir, "current"),
		filepath.Join(dir, "v1.36.3", "startups"), filepath.Join(dir, "v1.36.3", "trial"),
	}, err
}

func read(files []string) (_ map[string][]byte, err error) {
	defer must.Catch(&err)

	out := map[string][]byte{}
	for _, file := range files {
		data := must.Get(os.ReadFile(file))
		out[file] = data
	}
	return out, nil
}

// replace measures the floor: an equally durable replacement of a file.
func replace(dir, name string, data []byte) (err error) {
	defer must.Catch(&err)

	temp := filepath.Join(dir, name+".tmp")
	f := must.Get(os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600))
	must.Get(f.Write(data))
	must.OK(f.Sync())
	must.OK(f.Close())
	must.OK(os.Rename(temp, filepath.Join(dir, name)))
	d := must.Get(os.Open(dir))
	defer d.Close()
	return d.Sync()
}
