// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Client returns a client for the API server that the kubeconfig and the flags
// name. It has no cache: lists are read in pages.
func (e *Env) Client() (client.WithWatch, error) { return e.API() }

func (e *Env) connect() (client.WithWatch, error) {
	config, err := e.RESTConfig()
	if err != nil {
		return nil, err
	}

	return query.Connect(config, "kubectl-evenkeel/"+e.Program.Version)
}

// RESTConfig returns the connection that the kubeconfig and the flags name. The
// error says which of them is wrong.
func (e *Env) RESTConfig() (*rest.Config, error) {
	loader := e.kubeconfig()
	raw, err := loader.RawConfig()
	files := strings.Join(loader.ConfigAccess().GetLoadingPrecedence(), ", ")
	if given(e.Connection.KubeConfig) {
		files = *e.Connection.KubeConfig
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the kubeconfig %s does not exist: correct --kubeconfig, or omit it to use KUBECONFIG or ~/.kube/config", files)
	}
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be read: %w\ncorrect the file, or choose another with --kubeconfig or KUBECONFIG", err)
	}

	contexts := slices.Sorted(maps.Keys(raw.Contexts))
	if given(e.Connection.Context) && raw.Contexts[*e.Connection.Context] == nil {
		if len(contexts) == 0 {
			return nil, fmt.Errorf("context %q does not exist, and the kubeconfig (%s) has no others: choose a kubeconfig with --kubeconfig or "+
				"KUBECONFIG", *e.Connection.Context, files)
		}

		return nil, fmt.Errorf("context %q does not exist in the kubeconfig (%s); existing contexts: %s", *e.Connection.Context, files,
			printable.Few(contexts))
	}

	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("the connection to the cluster cannot be set up: %w\ncorrect the kubeconfig (%s) or the connection flags; "+
			"kubectl config view --minify shows what is used", err, files)
	}

	if chosen := given(e.Connection.Context) || given(e.Connection.APIServer) || given(e.Connection.ClusterName) ||
		raw.CurrentContext != ""; !chosen && config.Host == clientcmd.ClusterDefaults.Server && os.Getenv("KUBERNETES_MASTER") == "" {
		if len(contexts) == 0 {
			return nil, fmt.Errorf("no kubeconfig was found (%s): it says which cluster to use; choose one with --kubeconfig or KUBECONFIG", files)
		}

		return nil, fmt.Errorf("the kubeconfig (%s) has no current context: choose one with --context (%s), or with kubectl config use-context",
			files, printable.Few(contexts))
	}

	if klog.V(levelBodies).Enabled() {
		config.ContentType = runtime.ContentTypeJSON // in protobuf, the log would show hexadecimal dumps, in which credentials are not found
	}

	return config, nil
}

// kubeconfig reads the kubeconfig once: it can be a pipe.
func (e *Env) kubeconfig() clientcmd.ClientConfig {
	if e.loader == nil {
		e.loader = e.Connection.ToRawKubeConfigLoader()
	}

	return e.loader
}

// given reports whether a connection flag has a value.
func given(flag *string) bool { return flag != nil && *flag != "" }

// Context is a context of the kubeconfig.
type Context struct {
	Name   string // empty: there is no current context
	Config *rest.Config
}

// CurrentContext returns the context that the connection flags choose.
func (e *Env) CurrentContext() (Context, error) {
	config, err := e.RESTConfig()
	if err != nil {
		return Context{}, err
	}

	c := Context{Config: config}
	if raw, err := e.kubeconfig().RawConfig(); err == nil {
		c.Name = raw.CurrentContext
	}
	if given(e.Connection.Context) {
		c.Name = *e.Connection.Context
	}

	return c, nil
}

// ofOneCluster are the connection flags that are about a single cluster or its
// credentials. They must not be used with several.
var ofOneCluster = []string{"certificate-authority", "client-certificate", "client-key", "cluster", "insecure-skip-tls-verify", "server",
	"tls-server-name", "token", "user"}

// Contexts returns the contexts with these names, each once and in their order.
// The error for an unknown one lists the existing ones. flags are those of the
// command.
func (e *Env) Contexts(names []string, flags *pflag.FlagSet) ([]Context, error) {
	var out []Context
	before := e.Connection.Context
	defer func() { e.Connection.Context, e.loader = before, nil }()
	for _, name := range names {
		if slices.ContainsFunc(out, func(c Context) bool { return c.Name == name }) {
			continue
		}

		e.Connection.Context, e.loader = &name, nil
		config, err := e.RESTConfig()
		if err != nil {
			return nil, err
		}

		out = append(out, Context{name, config})
	}

	given := slices.DeleteFunc(slices.Clone(ofOneCluster), func(name string) bool {
		f := flags.Lookup(name)
		return f == nil || f.Value.String() == f.DefValue
	})
	if len(out) > 1 && len(given) > 0 {
		return nil, fmt.Errorf("--%s cannot be used with several contexts: it would apply to all of them; write it into the kubeconfig",
			strings.Join(given, ", --"))
	}

	return out, nil
}
