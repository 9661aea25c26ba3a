// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package payload decodes, validates, compares and redacts the kubelet
// configuration (KubeletConfiguration) that a ConfigMap or NodeConfig carries.
// It supports the upstream form and evenkeel's grouped form, knows the
// protected fields, and rejects configurations that no kubelet may receive.
//
// It must not know files, processes or the API server. Unknown upstream fields,
// values out of range and feature gates are left to the kubelet's dry run
// (package component).
package payload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Data keys of a ConfigMap; exactly one of them is required.
const (
	KeyKubelet       = "kubelet"        // a whole KubeletConfiguration
	KeyKubeletDropin = "kubelet-dropin" // a partial one, merged over the local configuration
)

// MaxSize is the maximum size of a payload in bytes, the size limit of a
// ConfigMap.
const MaxSize = 1 << 20

// maxIndented is the size, in bytes, up to which text is indented. With
// maxDepth it grows to at most 6 MiB.
const maxIndented = 64 << 10

// Payload is a configuration as assigned to a node. A kubelet can only receive
// what Resolve returns.
type Payload struct {
	Key    string              // KeyKubelet or KeyKubeletDropin
	Data   []byte              // exact bytes of the value
	SHA256 string              // hex of sha256(Key + "\n" + Data)
	Trial  v1alpha1.TrialTerms // settings in the payload; zero for an upstream KubeletConfiguration
	// Fields are the fields of the upstream form, to be shown and compared: a
	// rule is a text, in words. Numbers are int64 or float64.
	Fields map[string]any

	grouped  bool
	upstream []byte  // of a payload without rules; otherwise with their words
	rules    []*rule // that of maxPods is the first, the others are sorted by path
}

// Shown returns the path of an upstream field in the form of the payload.
func (p *Payload) Shown(path string) string {
	if p.grouped {
		return GroupedPath(path)
	}

	return path
}

// Problem is the reason for which a payload was rejected, in CamelCase.
type Problem string

// Problems of FromConfigMap and Decode.
const (
	ProblemKeys           Problem = "Keys"              // not exactly one known key
	ProblemEmpty          Problem = "Empty"             // only white space and comments
	ProblemTooLarge       Problem = "TooLarge"          // larger than MaxSize, or possibly so with expanded YAML aliases
	ProblemTooDeep        Problem = "TooDeep"           // mappings or lists nested too deep
	ProblemSyntax         Problem = "Syntax"            // neither JSON nor YAML, or not a mapping
	ProblemDocuments      Problem = "Documents"         // more than one YAML document
	ProblemDuplicate      Problem = "DuplicateKey"      // duplicate key in a mapping
	ProblemKind           Problem = "Kind"              // wrong kind or apiVersion
	ProblemGroup          Problem = "Group"             // grouped form: unknown or misplaced group or field
	ProblemTrial          Problem = "Trial"             // grouped form: invalid trial settings
	ProblemRule           Problem = "Rule"              // grouped form: a bad rule, or one with an impossible result on this machine
	ProblemCapacity       Problem = "Capacity"          // grouped form: the capacity of the machine that a rule needs is not known
	ProblemRelativePath   Problem = "RelativePath"      // a path that depends on the directory of the rendered file
	ProblemHealthDisabled Problem = "HealthEndpointOff" // the kubelet's health could not be checked
)

// Error describes why a payload was rejected.
type Error struct {
	Problem Problem
	Message string
}

func (e *Error) Error() string { return e.Message }

func newError(problem Problem, format string, args ...any) error {
	return &Error{problem, fmt.Sprintf(format, args...)}
}

// ProblemOf returns the problem of an *Error; empty for any other error.
func ProblemOf(err error) Problem {
	if refused, ok := errors.AsType[*Error](err); ok {
		return refused.Problem
	}

	return ""
}

// FromConfigMap returns the payload of a ConfigMap. The error is an *Error with
// the names of the ConfigMap and the key.
func FromConfigMap(cm *corev1.ConfigMap) (Payload, error) {
	object := "ConfigMap " + cm.Namespace + "/" + cm.Name
	refuse := func(words string) (Payload, error) {
		return Payload{}, newError(ProblemKeys, "%s: %s", object, words)
	}
	if len(cm.BinaryData) > 0 {
		return refuse("binaryData is not allowed (" + quoteAll(keys(cm.BinaryData)) + ")")
	}

	isKnown := func(key string) bool { return key == KeyKubelet || key == KeyKubeletDropin }
	found := keys(cm.Data)
	switch unknown := slices.DeleteFunc(slices.Clone(found), isKnown); {
	case len(unknown) > 0:
		return refuse("unknown data keys " + quoteAll(unknown) + "; exactly one of \"kubelet\" and \"kubelet-dropin\" is allowed")
	case len(found) == 0:
		return refuse("it has neither the data key \"kubelet\" nor \"kubelet-dropin\"")
	case len(found) > 1:
		return refuse("it has both data keys \"kubelet\" and \"kubelet-dropin\"; exactly one is allowed")
	}

	p, err := Decode(found[0], []byte(cm.Data[found[0]]))
	if refused, ok := errors.AsType[*Error](err); ok {
		refused.Message = fmt.Sprintf("%s: key %q: %s", object, found[0], refused.Message)
	}

	return p, err
}

// Decode decodes the payload of a data key. The error is an *Error, which does
// not name the key: files have none.
func Decode(key string, data []byte) (Payload, error) {
	p := Payload{Key: key, Data: data, SHA256: Digest(key, data), upstream: data}
	if err := p.decode(); err != nil {
		return Payload{}, err
	}

	return p, nil
}

func (p *Payload) decode() error {
	if p.Key != KeyKubelet && p.Key != KeyKubeletDropin {
		return newError(ProblemKeys, "unknown key %s", quote(p.Key))
	}
	if len(p.Data) > MaxSize {
		return newError(ProblemTooLarge, "larger than 1 MiB")
	}

	fields, err := DecodeMapping(p.Data)
	if err != nil {
		return err
	}
	if err := checkKind(fields); err != nil {
		return err
	}

	if p.grouped = fields[keyAPIVersion] == GroupedAPIVersion; p.grouped {
		if fields, err = p.flatten(fields); err != nil {
			return err
		}
	}

	text, err := json.Marshal(fields)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &p.Fields)
	}
	if err != nil {
		return syntaxError(err)
	}

	if p.grouped {
		if p.upstream, err = upstreamText(text); err != nil {
			return err
		}
	}

	return p.checkFields()
}

// Digest returns the hex SHA-256 digest of a data key and its value, which may
// be invalid.
func Digest(key string, data []byte) string {
	h := sha256.New()
	h.Write([]byte(key + "\n"))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

// quoteAll lists at most five names, so that a hostile ConfigMap cannot fill a
// status.
func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}

	return printable.First(quoted, 5, ", ")
}
