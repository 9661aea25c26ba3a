package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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

// statement is the part of an in-toto statement with a SLSA provenance that a release has. It does not have the times of the build,
// because a rebuild must give the same bytes.
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

// state writes the provenance of all files that are in the directory of the release.
func (r *release) state() error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	s := statement{Type: statementType, PredicateType: predicateType}
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(r.out, file.Name()))
		if err != nil {
			return err
		}
		s.Subject = append(s.Subject, resource{Name: file.Name(), Digest: map[string]string{"sha256": fmt.Sprintf("%x", sha256.Sum256(data))}})
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
