package component

import "context"

// runner runs a component's program where it is: on this host, or in an image.
type runner interface {
	// identify looks at the program. The error says plainly what is wrong with it, such as that there is none.
	identify(ctx context.Context) (Identity, error)
	// inside is the path by which the program finds a directory of this host that is its process's dir.
	inside(dir string) string
	// run runs the program to its end; the path of p is the runner's to give.
	run(ctx context.Context, id Identity, p process, out *transcript) ending
}

// program is one of this host.
type program struct{ name, path string }

func (r program) identify(context.Context) (Identity, error) { return identify(r.name, r.path) }

func (r program) inside(dir string) string { return dir }

func (r program) run(ctx context.Context, id Identity, p process, out *transcript) ending {
	p.path = id.Path
	return execute(ctx, p, out)
}
