// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/evenkeel/evenkeel/build/image"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// kubernetesRelease is a version of Kubernetes: a directory with its programs,
// and with the etcd and CoreDNS that its kubeadm wants.
type kubernetesRelease struct {
	dir     string
	version string // such as v1.36.3
}

// releaseIn asks the kubeadm of a directory for its version.
func releaseIn(ctx context.Context, dir string) (r kubernetesRelease) {
	out := must.Get(exec.CommandContext(ctx, filepath.Join(dir, "kubeadm"), "version", "-o", "short").Output())
	return kubernetesRelease{dir: dir, version: strings.TrimSpace(string(out))}
}

// pack writes the programs of a node and images.tar, all images that kubeadm
// wants, into a directory. Pause is the program of the sandboxes; tables is a
// tar archive with iptables, which kube-proxy runs.
func (r kubernetesRelease) pack(ctx context.Context, into, pause, tables string) {
	must.OK(os.MkdirAll(into, 0o755))
	for _, name := range []string{"kubeadm", "kubelet", "kubectl"} { // a node has them from packages; kubeadm's images contain the others
		must.OK(os.Link(filepath.Join(r.dir, name), filepath.Join(into, name)))
	}

	list := must.Get(exec.CommandContext(ctx, filepath.Join(r.dir, "kubeadm"), "config", "images", "list", "--kubernetes-version", r.version).Output())
	for reference := range strings.FieldsSeq(string(list)) {
		repository, tag, _ := strings.Cut(reference, ":")
		name := path.Base(repository)
		i := image.Image{References: []string{reference}, Programs: []image.Program{{Path: "/usr/local/bin/" + name, File: filepath.Join(r.dir, name)}}}
		switch name {
		case "pause":
			i.Programs[0].File = pause
		case "kube-proxy":
			i.Base = tables
		case "coredns", "etcd":
			saysVersion(ctx, i.Programs[0].File, tag)
		}

		archive, _ := must.Get2(i.Archive())
		must.OK(os.WriteFile(filepath.Join(into, name+".tar"), archive, 0o644))
	}
}

// saysVersion requires that a program is of the version in an image's tag, such
// as v1.14.2 or 3.6.8-0.
func saysVersion(ctx context.Context, program, tag string) {
	version, _, _ := strings.Cut(strings.TrimPrefix(tag, "v"), "-")
	out := succeeds(ctx, program, "--version")
	must.That(strings.Contains(out, version), "%s is not the version %s that kubeadm wants: %s", program, version, out)
}

// succeeds runs a program of the host, which must succeed, and returns what it
// printed.
func succeeds(ctx context.Context, program string, args ...string) string {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	must.That(err == nil, "%s: %w: %s", program, err, out)

	return string(out)
}

// tablesOf archives the iptables of the image's Debian with what they need.
func tablesOf(ctx context.Context, debian, file string) {
	const library = "usr/lib/x86_64-linux-gnu/"
	args := []string{"--create", "--file", file, "--directory", debian, "lib", "lib64", "etc/alternatives", library + "xtables", "usr/lib64"}
	for _, pattern := range []string{"usr/sbin/*tables*", library + "libxtables.so*", library + "libmnl.so*", library + "libnftnl.so*", library + "libc.so.6", library + "libm.so.6",
		library + "libip*tc.so*", library + "ld-linux-x86-64.so.2"} {
		found := must.Get(filepath.Glob(filepath.Join(debian, pattern)))
		must.That(len(found) > 0, "%s has no %s", debian, pattern)
		for _, name := range found {
			args = append(args, strings.TrimPrefix(name, debian+"/"))
		}
	}

	succeeds(ctx, "tar", args...)
}
