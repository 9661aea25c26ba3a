package component

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"
)

// kubeProxy asks a kube-proxy with --write-config-to: it decodes and validates its --config, writes what that amounts
// to and exits. Up to there it reads its configuration and changes nothing: no rule, no sysctl, no socket, no API.
type kubeProxy struct {
	path    string
	scratch string // the directory for its throw-away files
	log     *slog.Logger

	mu     sync.Mutex
	proven Identity // the binary that was seen to end where it should
}

const (
	kubeProxyAPIVersion = "kubeproxy.config.k8s.io/v1alpha1"
	kubeProxyKind       = "KubeProxyConfiguration"
)

func newKubeProxy(path, scratchDir string, log *slog.Logger) *binary {
	return &binary{
		name: "kube-proxy", path: path, apiVersion: kubeProxyAPIVersion, kind: kubeProxyKind,
		asker: &kubeProxy{path: path, scratch: scratchDir, log: log},
	}
}

func (p *kubeProxy) ask(ctx context.Context, data []byte) (answer, string) {
	id, err := identify("kube-proxy", p.path)
	if err != nil {
		return answer{words: err.Error()}, ""
	}
	if a := p.prove(ctx, id); a.outcome != Accepted {
		return answer{words: "the dry run does not work with this kube-proxy: " + a.words}, ""
	}
	return p.run(ctx, id, data), ""
}

// prove makes sure that this binary ends where it should, with a configuration that names no kubeconfig that is there:
// one that went on would end before it is a kube-proxy.
func (p *kubeProxy) prove(ctx context.Context, id Identity) answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proven == id {
		return answer{outcome: Accepted}
	}
	removeLeftovers(p.scratch, p.log)
	a := p.run(ctx, id, fmt.Appendf(emptyConfig(kubeProxyAPIVersion, kubeProxyKind),
		"clientConnection: {kubeconfig: %q}\n", filepath.Join(p.scratch, "no-kubeconfig")))
	if a.outcome == Accepted {
		p.proven = id
	}
	return a
}

func (p *kubeProxy) run(ctx context.Context, id Identity, data []byte) answer {
	dir, err := makeScratch(p.scratch, "tmp")
	if err != nil {
		return answer{words: fmt.Sprintf("no scratch directory for the dry run: %v", err)}
	}
	defer removeScratch(dir, p.log)
	config, result := filepath.Join(dir, "kube-proxy"), filepath.Join(dir, "effective")
	if err := os.WriteFile(config, data, 0o600); err != nil {
		return answer{words: fmt.Sprintf("no scratch file for the dry run: %v", err)}
	}
	out := &transcript{}
	began := time.Now()
	end := execute(ctx, process{
		path: id.Path, args: []string{"--config=" + config, "--write-config-to=" + result},
		env: kubeProxyEnv(filepath.Join(dir, "tmp")), deadline: dryRunDeadline,
	}, out)
	a := p.read(dir, result, out, end)
	p.log.Debug("dry run of kube-proxy", "outcome", a.outcome, "words", a.words, "took", time.Since(began))
	return a
}

// kubeProxyEnv takes away what a kube-proxy that went on would need: the programs that change rules, and the API of the
// cluster that we may be in.
func kubeProxyEnv(tmp string) []string {
	env := slices.DeleteFunc(dryRunEnv(tmp), func(kv string) bool {
		return strings.HasPrefix(kv, "PATH=") || strings.HasPrefix(kv, "KUBERNETES_SERVICE_")
	})
	return append(env, "PATH="+tmp)
}

func (p *kubeProxy) read(dir, result string, out *transcript, end ending) answer {
	if end.err != nil {
		return answer{words: "the dry run of the kube-proxy: " + end.err.Error()}
	}
	a := answer{outcome: Rejected, lenient: oneLine(out.lenient)}
	if end.code != 0 {
		a.words = out.lastWord()
		for _, wrapping := range []string{"failed complete: ", "failed validate: "} {
			a.words = strings.TrimPrefix(a.words, wrapping)
		}
		if a.words = oneLine(strings.ReplaceAll(a.words, dir+"/", "")); a.words == "" {
			a.words = fmt.Sprintf("the kube-proxy ended with exit code %d and no word", end.code)
		}
		return a
	}
	text, err := os.ReadFile(result)
	if err != nil {
		a.words = "the kube-proxy ended with exit code 0, but wrote no configuration"
		return a
	}
	if a.effective, err = decodeWritten(text); err != nil {
		return answer{words: "the configuration that the kube-proxy wrote cannot be read: " + clip(err.Error(), maxWords)}
	}
	a.outcome = Accepted
	return a
}

// decodeWritten reads the file that a kube-proxy wrote; the names in it are the API's already.
func decodeWritten(text []byte) (Effective, error) {
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, err
	}
	e, err := decodeJSON(asJSON)
	if err != nil {
		return nil, err
	}
	if e["kind"] != kubeProxyKind {
		return nil, fmt.Errorf("its kind is %v", e["kind"])
	}
	return e, nil
}
