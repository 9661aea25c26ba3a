// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"path"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	packageurl "github.com/package-url/packageurl-go"
)

// billOf returns the bill of materials of a program in the CycloneDX format. It
// reads the modules from the build information in the program, so it always
// fits the program and needs no network.
func (r *release) billOf(name string, program []byte) []byte {
	build := get(buildinfo.Read(bytes.NewReader(program)))
	self := component(cyclonedx.ComponentTypeApplication, name, r.version, build.Main.Path)
	self.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(program))}}
	self.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}}
	parts := []cyclonedx.Component{component(cyclonedx.ComponentTypeLibrary, "std", strings.TrimPrefix(build.GoVersion, "go"), "std")}
	for _, module := range build.Deps {
		if module.Replace != nil {
			module = module.Replace
		}

		parts = append(parts, component(cyclonedx.ComponentTypeLibrary, module.Path, module.Version, module.Path))
	}

	uses := make([]string, len(parts))
	for i, part := range parts {
		uses[i] = part.BOMRef
	}

	bill := cyclonedx.NewBOM()
	bill.Metadata = &cyclonedx.Metadata{Timestamp: r.time.Format("2006-01-02T15:04:05Z"), Component: &self}
	bill.Components = &parts
	bill.Dependencies = &[]cyclonedx.Dependency{{Ref: self.BOMRef, Dependencies: &uses}}
	var out bytes.Buffer
	ok(cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bill))

	return out.Bytes()
}

// component is a module or a program, with its version.
func component(kind cyclonedx.ComponentType, name, version, module string) cyclonedx.Component {
	url := packageurl.NewPackageURL(packageurl.TypeGolang, strings.TrimSuffix(path.Dir(module), "."), path.Base(module), version, nil, "").ToString()
	return cyclonedx.Component{BOMRef: url, Type: kind, Name: name, Version: version, PackageURL: url}
}
