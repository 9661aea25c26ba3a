// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"runtime"
)

// Types of the provenance, from the specifications of in-toto and SLSA.
const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
)

// resource is a file or source with its digests: ResourceDescriptor of in-toto.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest"`
}

// statement is the part of an in-toto statement with a SLSA provenance that a
// release has. It does not have the times of the build, because a rebuild must
// give the same bytes.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     struct {
		BuildDefinition struct {
			BuildType            string            `json:"buildType"`
			ExternalParameters   map[string]string `json:"externalParameters"`
			InternalParameters   map[string]string `json:"internalParameters"`
			ResolvedDependencies []resource        `json:"resolvedDependencies"`
		} `json:"buildDefinition"`
		RunDetails struct {
			Builder struct {
				ID string `json:"id"`
			} `json:"builder"`
		} `json:"runDetails"`
	} `json:"predicate"`
}

// state writes the provenance of all files that are in the directory of the
// release.
func (r *release) state() error {
	s := statement{Type: statementType, PredicateType: predicateType}
	err := r.each(func(name string, digest []byte) error {
		s.Subject = append(s.Subject, resource{Name: name, Digest: map[string]string{"sha256": fmt.Sprintf("%x", digest)}})
		return nil
	})
	if err != nil {
		return err
	}

	build := &s.Predicate.BuildDefinition
	build.BuildType = repository + "/blob/" + r.version + "/docs/releases.md#provenance"
	build.ExternalParameters = map[string]string{"version": r.version, "registry": r.registry, "downloads": r.downloads}
	build.InternalParameters = map[string]string{"go": runtime.Version()}
	build.ResolvedDependencies = []resource{{URI: "git+" + repository + "@" + r.commit, Digest: map[string]string{"gitCommit": r.commit}}}
	s.Predicate.RunDetails.Builder.ID = repository + "/blob/" + r.version + "/Makefile"
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}

	return r.write("evenkeel-"+r.version+".provenance.json", append(text, '\n'), 0o644)
}
