// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/testkit/must"
)

const sampleEvery = 30 * time.Second

// columns are the values of a sample, in the order of the file. Memory and disk are in KiB. A process that does not run has
// empty values.
var columns = []string{
	"run", "seconds", "changes", "kills", // of the run so far
	"agent_age", // seconds since the agent was started
	"agent_rss", "agent_anon", "agent_fds", "agent_threads", "agent_goroutines",
	"relay_rss", "relay_anon", "relay_fds", "relay_threads", // the process that copies the kubelet's log
	"controller_rss", "controller_anon", "controller_fds", "controller_threads", "controller_goroutines",
	"state_size", "state_files", // --dynamic-config-dir
	"run_files",            // the runtime directory, where killed agents could leave something
	"agent_log", "all_log", // what the agent wrote to its log, and the whole log with the kubelet's lines
	"controller_log",
}

// sample is one measurement, by column.
type sample map[string]float64

// sampleAll measures everything regularly and appends it to the file.
func (r *longRun) sampleAll(ctx context.Context) (err error) {
	defer must.Catch(&err)

	number := must.Get(countRuns(r.data.Name()))
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	log := &logSize{file: r.agent.Log}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		s := sample{"run": float64(number), "seconds": time.Since(r.begin).Round(time.Second).Seconds(),
			"changes": float64(r.changes.Load()), "kills": float64(r.kills.Load())}
		r.measureAgent(ctx, s)
		measure(s, "controller", r.controller.Pid())
		goroutines(ctx, s, "controller", r.controllerMetrics)
		must.OK(errors.Join(r.measureDisk(s), log.measure(s)))
		r.mu.Lock()
		r.samples = append(r.samples, s)
		r.mu.Unlock()
		must.Get(io.WriteString(r.data, s.String()))
	}
}

// measureAgent measures the agent and the relay, neither of which need run at this moment.
func (r *longRun) measureAgent(ctx context.Context, s sample) {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	s["agent_age"] = time.Since(r.born).Round(time.Second).Seconds()
	measure(s, "agent", r.agent.Pid())
	goroutines(ctx, s, "agent", r.agent.Listen)
	if pid, err := r.agent.RelayPID(); err == nil {
		measure(s, "relay", pid)
	}
}

// measure adds the figures of a process, or nothing if it has ended.
func measure(s sample, name string, pid int) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return
	}
	s[name+"_fds"] = float64(len(fds))
	for line := range strings.Lines(string(raw)) {
		key, value, _ := strings.Cut(line, ":")
		column, ok := map[string]string{"VmRSS": "_rss", "RssAnon": "_anon", "Threads": "_threads"}[key]
		if !ok {
			continue
		}
		if v, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64); err == nil {
			s[name+column] = v
		}
	}
}

// goroutines adds go_goroutines of a program, or nothing if it does not answer.
func goroutines(ctx context.Context, s sample, name, address string) {
	if v, ok := metric(ctx, address, "go_goroutines"); ok {
		s[name+"_goroutines"] = v
	}
}

// metric returns a value of a metrics endpoint without labels. ok is false if the endpoint does not answer or does not have it.
func metric(ctx context.Context, address, name string) (value float64, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0, false
	}
	req.Close = true // an idle connection would be a goroutine of the program that is measured
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, false
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(raw)) {
		if text, found := strings.CutPrefix(line, name+" "); found {
			value, err = strconv.ParseFloat(strings.TrimSpace(text), 64)
			return value, err == nil
		}
	}
	return 0, false
}

func (r *longRun) measureDisk(s sample) (err error) {
	defer must.Catch(&err)

	size, files := must.Get2(usage(r.agent.Dir))
	s["state_size"], s["state_files"] = kib(size), float64(files)
	_, files = must.Get2(usage(filepath.Join(r.Node.Dir(), "run-evenkeel")))
	s["run_files"] = float64(files)
	info, err := os.Stat(r.controller.Log)
	if err == nil {
		s["controller_log"] = kib(info.Size())
	}
	return err
}

// leftFor is how long the files of a dry run whose agent was killed may stay: an agent removes those that are older than an hour.
const leftFor = 70 * time.Minute

// usage returns the size and the number of the files below a directory, without those of recent dry runs. Files can disappear
// meanwhile.
func usage(dir string) (size int64, files int, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := entry.Info()
		switch {
		case err == nil && entry.IsDir():
			if strings.HasPrefix(entry.Name(), "dryrun-") && time.Since(info.ModTime()) < leftFor {
				return fs.SkipDir
			}
		case err == nil:
			size, files = size+info.Size(), files+1
		case errors.Is(err, fs.ErrNotExist):
			err = nil
		}
		return err
	})
	return size, files, err
}

// logSize counts what the agent, and what all, wrote to the common log.
type logSize struct {
	file        string
	agent, read int64
}

func (l *logSize) measure(s sample) (err error) {
	defer must.Catch(&err)

	f := must.Get(os.Open(l.file))
	defer f.Close()
	raw := must.Get(io.ReadAll(io.NewSectionReader(f, l.read, 1<<30)))
	raw = raw[:bytes.LastIndexByte(raw, '\n')+1]
	l.read += int64(len(raw))
	for line := range bytes.Lines(raw) {
		if bytes.HasPrefix(line, []byte("time=")) {
			l.agent += int64(len(line))
		}
	}
	s["agent_log"], s["all_log"] = kib(l.agent), kib(l.read)
	return nil
}

func kib(bytes int64) float64 { return math.Round(float64(bytes)/102.4) / 10 }

// String returns the sample as a line of the file.
func (s sample) String() string {
	var cells []string
	for _, column := range columns {
		cell := ""
		if v, ok := s[column]; ok {
			cell = strconv.FormatFloat(v, 'f', -1, 64)
		}
		cells = append(cells, cell)
	}
	return strings.Join(cells, ",") + "\n"
}

// openData opens the file of all runs for a new run, and creates it if it does not exist. A comment introduces each run.
func openData(file, commit string, seed uint64) (_ *os.File, err error) {
	defer must.Catch(&err)

	runs, err := countRuns(file)
	head := ""
	if errors.Is(err, os.ErrNotExist) {
		head, err = strings.Join(columns, ",")+"\n", nil
	}
	if err != nil {
		return nil, err
	}
	f := must.Get(os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))
	_, err = fmt.Fprintf(f, "%s# run %d, %s, commit %s, seed %d\n", head, runs+1, time.Now().UTC().Format(time.DateOnly), commit, seed)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func countRuns(file string) (int, error) {
	raw, err := os.ReadFile(file)
	return bytes.Count(raw, []byte("\n# run ")), err
}

// readData returns all samples of the file.
func readData(file string) (_ []sample, err error) {
	defer must.Catch(&err)

	raw := must.Get(os.ReadFile(file))
	var out []sample
	var names []string
	number := 0
	for line := range strings.Lines(string(raw)) {
		number++
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, ",")
		if names == nil {
			names = cells
			continue
		}
		if len(cells) != len(names) {
			return nil, fmt.Errorf("%s:%d: %d values, not %d", file, number, len(cells), len(names))
		}
		s := sample{}
		for i, cell := range cells {
			if cell == "" {
				continue
			}
			if s[names[i]], err = strconv.ParseFloat(cell, 64); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, number, err)
			}
		}
		out = append(out, s)
	}
	return out, nil
}
