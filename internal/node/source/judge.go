package source

import (
	"fmt"
	"regexp"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// The CRD refuses all that judge calls invalid, but an older CRD may not, and these names come to stand in paths.
var (
	labelPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	namePattern  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	uidPattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	shaPattern   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// judge says what a spec means by itself: Unassigned, Nil, Invalid with the cause, or Assigned, which then still has
// to be fetched. It implements the proposal's "Finding and checkpointing intended configuration". That a source is absent
// means nothing by itself: only the node knows whether this object had assigned what it runs.
func judge(s *v1alpha1.NodeConfigSource) (kind trial.IntentKind, cause string) {
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
		words       string
	}{
		{"namespace", s.ConfigMapRef.Namespace, labelPattern.MatchString(s.ConfigMapRef.Namespace), "a DNS label of lower-case letters, digits and dashes"},
		{"name", s.ConfigMapRef.Name, len(s.ConfigMapRef.Name) <= 253 && namePattern.MatchString(s.ConfigMapRef.Name), "a DNS name of lower-case letters, digits, dashes and dots"},
		{"uid", string(s.ConfigMapRef.UID), uidPattern.MatchString(string(s.ConfigMapRef.UID)), "letters, digits, dots, dashes and underscores, beginning with a letter or digit"},
		{"sha256", s.ConfigMapRef.SHA256, s.ConfigMapRef.SHA256 == "" || shaPattern.MatchString(s.ConfigMapRef.SHA256), "64 lower-case hexadecimal digits"},
	} {
		if field.value == "" && !field.valid {
			return trial.Invalid, fmt.Sprintf("invalid NodeConfigSource, configMapRef.%s must be non-empty", field.name)
		}
		if !field.valid {
			return trial.Invalid, fmt.Sprintf("invalid NodeConfigSource, configMapRef.%s must be %s, but is %s", field.name, field.words, bound(fmt.Sprintf("%q", field.value)))
		}
	}
	return trial.Assigned, ""
}
