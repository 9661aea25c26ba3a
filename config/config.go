// Package config is the manifests that an installation of evenkeel consists of, as this build expects them.
//
// It must not know what anybody does with them.
package config

import "embed"

// Files are the API with its rules and rights, and the rights of the controller.
//
//go:embed api/*.yaml api/crd/*.yaml controller/rbac.yaml controller/flowschema.yaml
var Files embed.FS
