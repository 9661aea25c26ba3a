// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAFileIsReadUpToItsLimit(t *testing.T) {
	e := &Env{}
	file := filepath.Join(t.TempDir(), "workers.yaml")
	for size, want := range map[int]string{
		1 << 20:   "",
		1<<20 + 1: file + " is larger than 1 MiB, which is the limit: it was not used; use a smaller file",
	} {
		assert.NoError(t, os.WriteFile(file, make([]byte, size), 0o600))
		data, name, err := e.ReadFile(t.Context(), file, 1<<20)
		assert.Equal(t, name, file)
		if want == "" {
			assert.That(t, err == nil && len(data) == size, "read %d of %d bytes: %v", len(data), size, err)
			continue
		}

		assert.Error(t, err, want)
		assert.That(t, data == nil, "read %d of %d bytes", len(data), size)
	}
}

func TestReadingEndsWhenInterrupted(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	assert.NoError(t, syscall.Mkfifo(pipe, 0o600))
	in, nobody := io.Pipe()
	defer nobody.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, file := range []string{pipe, "-"} {
		_, _, err := (&Env{IOStreams: genericclioptions.IOStreams{In: in}}).ReadFile(ctx, file, 1)
		assert.ErrorHas(t, err, "interrupted: nothing was written", file)
	}
}

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: here, contexts: [{name: here, context: {cluster: c}}, {name: away, context: {cluster: c}}],
  clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]}`

func envWith(t *testing.T) (e *Env, flags *pflag.FlagSet, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "kubeconfig")
	assert.NoError(t, os.WriteFile(file, []byte(kubeconfig), 0o600))
	e = NewEnv(program.Info{}, genericclioptions.NewTestIOStreamsDiscard())
	flags = pflag.NewFlagSet("test", pflag.ContinueOnError)
	e.Connection.AddFlags(flags)
	assert.NoError(t, flags.Parse([]string{"--kubeconfig", file}))

	return e, flags, file
}

func TestAKubeconfigIsReadOnce(t *testing.T) {
	e, _, file := envWith(t)
	assert.NoError(t, assert.Err(e.RESTConfig()))
	assert.NoError(t, os.Remove(file)) // what was a pipe is empty now
	c, err := e.CurrentContext()
	assert.That(t, err == nil && c.Name == "here" && c.Config.Host == "https://127.0.0.1:1", "the context is %+v: %v", c, err)
}

func TestSeveralContexts(t *testing.T) {
	for _, tt := range []struct {
		flags []string
		want  string
	}{
		{nil, ""},
		{[]string{"--server=", "--token=", "--insecure-skip-tls-verify=false"}, ""},
		{[]string{"--token=secret", "--server=https://other"}, "--server, --token cannot be used with several contexts"},
		{[]string{"--insecure-skip-tls-verify"}, "--insecure-skip-tls-verify cannot be used with several contexts"},
	} {
		e, flags, _ := envWith(t)
		assert.NoError(t, flags.Parse(tt.flags))
		all, err := e.Contexts([]string{"here", "away", "here"}, flags)
		if tt.want != "" {
			assert.That(t, err != nil && strings.HasPrefix(err.Error(), tt.want), "%s: the error is %v", tt.flags, err)
			continue
		}

		assert.That(t, err == nil && len(all) == 2 && all[0].Name == "here" && all[1].Name == "away", "%s: %+v: %v", tt.flags, all, err)
		c, err := e.CurrentContext()
		assert.That(t, err == nil && c.Name == "here", "%s: the current context is %+v: %v", tt.flags, c, err)
	}
}

func TestTheLogMasksHeadersAndPathsOfStaticPodURLs(t *testing.T) {
	quoted := func(text string) string {
		line := assert.Value(json.Marshal(text))(t)
		return string(line)
	}
	const (
		fields = `{"kubelet":{"maxPods":7,"staticPodURL":"https://example.com/swordfish?x=swordfish","staticPodURLHeader":{"X-Mine":["swordfish"],"Y":["swordfish"]},"podsPerCore":3}}`
		block  = "maxPods: 7\nstaticPodURL: https://example.com/swordfish\nstaticPodURLHeader:\n  X-Mine:\n  - \"swordfish\"\n  Y:\n  - swordfish\npodsPerCore: 3\n"
		flow   = "maxPods: 7\nstaticPodURLHeader: {X-Mine: [swordfish]}\npodsPerCore: 3\n"
	)
	for _, record := range []string{fields, block, flow, quoted(fields), quoted(block), quoted(quoted(block)), quoted(flow)} {
		got := maskLog(record)
		assert.That(t, !strings.Contains(got, "swordfish") && strings.Contains(got, "maxPods") && strings.Contains(got, "podsPerCore"),
			"the log shows %s\nfor %s", got, record)
	}
}
