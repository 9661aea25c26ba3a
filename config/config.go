// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config embeds the manifests of an installation of evenkeel, as this
// build expects them.
//
// It must not know how the manifests are used.
package config

import "embed"

// Files holds the CRDs, admission policies and RBAC rules of the API, and the
// RBAC rules and flow schemas of the controller.
//
//go:embed api/*.yaml api/crd/*.yaml controller/rbac.yaml controller/flowschema.yaml
var Files embed.FS

// Roles holds the roles for people who use kubectl evenkeel.
//
//go:embed api/people-rbac.yaml installer/people-rbac.yaml
var Roles embed.FS
