// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"runtime"
)

// object is one of JSON.
type object map[string]any

// state writes the provenance of all files that are in the directory of the
// release: an in-toto statement with a SLSA provenance. It does not have the
// times of the build, because a rebuild must give the same bytes.
func (r *release) state() {
	var subject []object
	r.each(func(name string, digest []byte) {
		subject = append(subject, object{"name": name, "digest": object{"sha256": fmt.Sprintf("%x", digest)}})
	})
	page := repository + "/blob/" + r.version
	text := get(json.MarshalIndent(object{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subject,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": object{
			"buildDefinition": object{
				"buildType":            page + "/docs/releases.md#provenance",
				"externalParameters":   object{"version": r.version, "registry": r.registry, "downloads": r.downloads},
				"internalParameters":   object{"go": runtime.Version()},
				"resolvedDependencies": []object{{"uri": "git+" + repository + "@" + r.commit, "digest": object{"gitCommit": r.commit}}},
			},
			"runDetails": object{"builder": object{"id": page + "/Makefile"}},
		},
	}, "", "  "))
	r.write("evenkeel-"+r.version+".provenance.json", append(text, '\n'), 0o644)
}
