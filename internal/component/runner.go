// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import "context"

// runner runs a component's binary on this host or in an image.
type runner interface {
	// identify returns the identity of the binary. The error says why it is unusable, for example missing.
	identify(ctx context.Context) (Identity, error)
	// inside returns the path at which the program sees the process's directory.
	inside(dir string) string
	// run runs the program and waits for its exit. It sets p.path.
	run(ctx context.Context, id Identity, p process, out *outputReader) exitStatus
}

// program is a binary on this host.
type program struct{ name, path string }

func (r program) identify(context.Context) (Identity, error) { return identify(r.name, r.path) }

func (r program) inside(dir string) string { return dir }

func (r program) run(ctx context.Context, id Identity, p process, out *outputReader) exitStatus {
	p.path = id.Path
	return execute(ctx, p, out)
}
