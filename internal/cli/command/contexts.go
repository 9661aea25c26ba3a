// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
)

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
	if raw, err := e.Connection.ToRawKubeConfigLoader().RawConfig(); err == nil {
		c.Name = raw.CurrentContext
	}
	if given(e.Connection.Context) {
		c.Name = *e.Connection.Context
	}
	return c, nil
}

// ofOneCluster are the connection flags that are about a single cluster or its credentials. They must not be used with several.
func ofOneCluster(f *genericclioptions.ConfigFlags) map[string]bool {
	return map[string]bool{
		"server": given(f.APIServer), "tls-server-name": given(f.TLSServerName), "certificate-authority": given(f.CAFile),
		"cluster": given(f.ClusterName), "user": given(f.AuthInfoName), "token": given(f.BearerToken),
		"client-certificate": given(f.CertFile), "client-key": given(f.KeyFile),
		"insecure-skip-tls-verify": f.Insecure != nil && *f.Insecure,
	}
}

// Contexts returns the contexts with these names, each once and in their order. The error for an unknown one lists the existing
// ones.
func (e *Env) Contexts(names []string) ([]Context, error) {
	var out []Context
	for _, name := range names {
		if slices.ContainsFunc(out, func(c Context) bool { return c.Name == name }) {
			continue
		}
		of := *e
		of.Connection = e.connectionTo(name)
		config, err := of.RESTConfig()
		if err != nil {
			return nil, err
		}
		out = append(out, Context{name, config})
	}
	if len(out) > 1 {
		var given []string
		for flag, is := range ofOneCluster(e.Connection) {
			if is {
				given = append(given, "--"+flag)
			}
		}
		if len(given) > 0 {
			slices.Sort(given)
			return nil, fmt.Errorf("%s cannot be used with several contexts: it would apply to all of them; write it into the kubeconfig",
				strings.Join(given, ", "))
		}
	}
	return out, nil
}

// connectionTo returns the connection flags with another context.
func (e *Env) connectionTo(context string) *genericclioptions.ConfigFlags {
	f, c := genericclioptions.NewConfigFlags(false), e.Connection
	f.CacheDir, f.KubeConfig, f.ClusterName, f.AuthInfoName, f.Namespace = c.CacheDir, c.KubeConfig, c.ClusterName, c.AuthInfoName, c.Namespace
	f.APIServer, f.TLSServerName, f.Insecure, f.CertFile, f.KeyFile, f.CAFile = c.APIServer, c.TLSServerName, c.Insecure, c.CertFile,
		c.KeyFile, c.CAFile
	f.BearerToken, f.Impersonate, f.ImpersonateUID, f.ImpersonateGroup = c.BearerToken, c.Impersonate, c.ImpersonateUID, c.ImpersonateGroup
	f.ImpersonateUserExtra, f.Username, f.Password, f.Timeout = c.ImpersonateUserExtra, c.Username, c.Password, c.Timeout
	f.DisableCompression, f.ProxyURL, f.WrapConfigFn = c.DisableCompression, c.ProxyURL, c.WrapConfigFn
	f.Context = &context
	return f
}
