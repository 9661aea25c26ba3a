package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/figures"
)

// diskBench measures the checkpoint of a configuration on disk. The floor is writing the same bytes with the same fsyncs.
func diskBench(ctx context.Context) error {
	const rounds = 60
	dir, err := os.MkdirTemp(".", "bench-disk-") // not a tmpfs
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	store, err := checkpoint.Open(atomicfile.OS{}, filepath.Join(dir, "state"), "v1.36.3", slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if _, problems := store.Load(); len(problems) > 0 {
		return fmt.Errorf("a fresh directory has problems: %v", problems)
	}
	object := []byte(`{"data":{"kubelet":"` + strings.Repeat("x", 4<<10) + `"}}`)
	hand := filepath.Join(dir, "hand")
	if err := os.Mkdir(hand, 0o700); err != nil {
		return err
	}
	var ours, theirs []time.Duration
	for i := range rounds {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		begin := time.Now()
		files, err := adopt(store, filepath.Join(dir, "state"), i, object)
		if err != nil {
			return err
		}
		ours = append(ours, time.Since(begin))
		contents, err := read(files)
		if err != nil {
			return err
		}
		begin = time.Now()
		for name, data := range contents {
			if err := replace(hand, filepath.Base(name), data); err != nil {
				return err
			}
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
func adopt(store *checkpoint.Store, dir string, i int, object []byte) ([]string, error) {
	revision := fmt.Sprintf("revision-%d", i)
	sum, err := store.Put(revision, object)
	if err != nil {
		return nil, err
	}
	now := time.Unix(int64(1700000000+i), 0).UTC()
	err = store.Save(trial.State{
		Current:  trial.AdoptedConfig{Config: trial.Config{Revision: revision, Namespace: "a", Name: "b", UID: revision, Payload: sum, Checkpoint: sum}, Since: now},
		Startups: []time.Time{now},
		Trial:    &trial.Trial{Revision: revision, StartTime: now, BootID: "boot"},
	})
	return []string{
		filepath.Join(dir, "checkpoints", revision), filepath.Join(dir, "current"),
		filepath.Join(dir, "v1.36.3", "startups"), filepath.Join(dir, "v1.36.3", "trial"),
	}, err
}

func read(files []string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		out[file] = data
	}
	return out, nil
}

// replace measures the floor: an equally durable replacement of a file.
func replace(dir, name string, data []byte) error {
	temp := filepath.Join(dir, name+".tmp")
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(temp, filepath.Join(dir, name)); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
