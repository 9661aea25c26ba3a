// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// kubeProxyValidator runs kube-proxy with --write-config-to: kube-proxy decodes
// and validates its --config, writes the effective configuration and exits.
// Until then it changes nothing: no rules, sysctls, sockets or API objects.
type kubeProxyValidator struct {
	runner
	scratch string // directory for temporary files
	log     *slog.Logger

	mu        sync.Mutex
	probed    Identity // the binary that ended as expected
	preferred string   // the apiVersion that it wrote
}

const kubeProxyKind = "KubeProxyConfiguration"

func newKubeProxy(path, scratchDir string, log *slog.Logger) *binary {
	return newKubeProxyWith(program{"kube-proxy", path}, scratchDir, log)
}

func newKubeProxyWith(r runner, scratchDir string, log *slog.Logger) *binary {
	return &binary{
		name: "kube-proxy", kind: kubeProxyKind, runner: r,
		validator: &kubeProxyValidator{runner: r, scratch: scratchDir, log: log},
	}
}

func (p *kubeProxyValidator) validate(ctx context.Context, data []byte) (result, string) {
	id, _, err := p.probeBinary(ctx)
	if err != nil {
		return result{message: err.Error()}, ""
	}

	return p.dryRun(ctx, id, data), ""
}

func (p *kubeProxyValidator) probe(ctx context.Context) (string, error) {
	_, preferred, err := p.probeBinary(ctx)
	return preferred, err
}

// probeBinary verifies that this binary exits after a dry run, without any
// configuration: a kube-proxy that continued would fail because it has no
// kubeconfig. It writes its defaults in its preferred version.
func (p *kubeProxyValidator) probeBinary(ctx context.Context) (Identity, string, error) {
	id, err := p.identify(ctx)
	if err != nil {
		return id, "", err
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.probed == id {
		return id, p.preferred, nil
	}

	removeLeftovers(p.scratch, p.log)
	a := p.dryRun(ctx, id, nil)
	if a.outcome != Accepted {
		return id, "", fmt.Errorf("the dry run does not work with this kube-proxy: %s", a.message)
	}

	p.probed, p.preferred = id, a.effective.String("apiVersion")

	return id, p.preferred, nil
}

// dryRun makes kube-proxy write its defaults if data is nil.
func (p *kubeProxyValidator) dryRun(ctx context.Context, id Identity, data []byte) result {
	dir, err := makeScratch(p.scratch, "tmp")
	if err != nil {
		return result{message: fmt.Sprintf("no scratch directory for the dry run: %v", err)}
	}

	defer removeScratch(dir, p.log)
	args := []string{"--write-config-to=" + filepath.Join(p.inside(dir), resultFile)}
	if data != nil {
		if err := os.WriteFile(filepath.Join(dir, configFile), data, 0o600); err != nil {
			return result{message: fmt.Sprintf("no scratch file for the dry run: %v", err)}
		}

		args = append(args, "--config="+filepath.Join(p.inside(dir), configFile))
	}

	out := &outputReader{}
	began := time.Now()
	end := p.run(ctx, id, process{
		args: args, env: kubeProxyEnv(filepath.Join(dir, "tmp")), dir: dir, deadline: dryRunDeadline, confined: true,
	}, out)
	a := p.read(dir, out, end)
	p.log.Debug("dry run of kube-proxy", "outcome", a.outcome, "words", a.message, "took", time.Since(began))

	return a
}

// kubeProxyEnv removes what a kube-proxy that continued after the dry run would
// need: the programs that change rules, and the address of the API server if
// this process runs in a pod.
func kubeProxyEnv(tmp string) []string {
	env := slices.DeleteFunc(dryRunEnv(tmp), func(kv string) bool { return strings.HasPrefix(kv, "KUBERNETES_SERVICE_") })
	return append(env, "PATH="+tmp)
}

// Names of the files of a dry run.
const (
	configFile = "kube-proxy.config"
	resultFile = "effective"
)

func (p *kubeProxyValidator) read(dir string, out *outputReader, end exitStatus) result {
	if end.err != nil {
		return result{message: "the dry run of the kube-proxy: " + end.err.Error()}
	}

	a := result{outcome: Rejected, strictError: oneLine(out.strictError)}
	if end.code != 0 {
		a.message = out.failureText()
		for _, wrapping := range []string{"failed complete: ", "failed validate: "} {
			a.message = strings.TrimPrefix(a.message, wrapping)
		}
		if a.message = oneLine(strings.ReplaceAll(a.message, p.inside(dir)+"/", "")); a.message == "" {
			a.message = fmt.Sprintf("the kube-proxy ended with exit code %d and no message", end.code)
		}

		return a
	}

	text, err := atomicfile.ReadBounded(filepath.Join(dir, resultFile), maxDump)
	if err != nil {
		a.message = "the kube-proxy ended with exit code 0, but wrote no configuration"
		return a
	}

	if a.effective, err = decodeWritten(text); err != nil {
		return result{message: "the configuration that the kube-proxy wrote cannot be read: " + clip(err.Error(), maxMessage)}
	}

	a.outcome = Accepted

	return a
}

// decodeWritten decodes the file written by kube-proxy, which already uses the
// API's names.
func decodeWritten(text []byte) (Effective, error) {
	fields, err := payload.DecodeMapping(text)
	if err != nil {
		return nil, err
	}

	e := Effective(fields)
	if e["kind"] != kubeProxyKind {
		return nil, fmt.Errorf("its kind is %v", e["kind"])
	}
	if e.String("apiVersion") == "" {
		return nil, errors.New("it has no apiVersion")
	}

	return e, nil
}
