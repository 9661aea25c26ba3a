// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"regexp"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// The CRD refuses what validate calls invalid, but an older CRD may not, and these names become parts of paths.
var (
	labelPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	namePattern  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	uidPattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	shaPattern   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// validate classifies a spec by itself: Unassigned, Nil, Invalid with the cause, or Assigned if the object must be
// fetched. It implements "Finding and checkpointing intended configuration" of the proposal. A missing source has no
// meaning by itself: only the node knows whether this NodeConfig assigned the running configuration.
func validate(s *v1alpha1.NodeConfigSource) (kind trial.IntentKind, cause string) {
	switch {
	case s == nil:
		return trial.Unassigned, ""
	case s.Local == nil && s.ConfigMapRef == nil:
		return trial.Invalid, "invalid NodeConfigSource, exactly one subfield must be non-nil, but all were nil"
	case s.Local != nil && s.ConfigMapRef != nil:
		return trial.Invalid, "invalid NodeConfigSource, exactly one subfield must be non-nil, but 2 were set: local and configMapRef"
	case s.Local != nil:
		return trial.Nil, ""
	}
	for _, field := range []struct {
		name, value string
		valid       bool
		requirement string
	}{
		{"namespace", s.ConfigMapRef.Namespace, labelPattern.MatchString(s.ConfigMapRef.Namespace),
			"a DNS label of lower-case letters, digits and dashes"},
		{"name", s.ConfigMapRef.Name, len(s.ConfigMapRef.Name) <= 253 && namePattern.MatchString(s.ConfigMapRef.Name),
			"a DNS name of lower-case letters, digits, dashes and dots"},
		{"uid", string(s.ConfigMapRef.UID), uidPattern.MatchString(string(s.ConfigMapRef.UID)),
			"letters, digits, dots, dashes and underscores, beginning with a letter or digit"},
		{"sha256", s.ConfigMapRef.SHA256, s.ConfigMapRef.SHA256 == "" || shaPattern.MatchString(s.ConfigMapRef.SHA256),
			"64 lower-case hexadecimal digits"},
	} {
		if field.value == "" && !field.valid {
			return trial.Invalid, fmt.Sprintf("invalid NodeConfigSource, configMapRef.%s must be non-empty", field.name)
		}
		if !field.valid {
			return trial.Invalid, fmt.Sprintf("invalid NodeConfigSource, configMapRef.%s must be %s, but is %s", field.name, field.requirement,
				oneLine(fmt.Sprintf("%q", field.value)))
		}
	}
	return trial.Assigned, ""
}
