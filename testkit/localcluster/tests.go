package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// startWithin is how long a cluster that tests share, and what they want of it, may take to be there.
const startWithin = 2 * time.Minute

// ForTests is for a TestMain whose tests share a cluster: it starts one, has run prepare it and run the tests, stops it, and
// returns run's exit code, or 1 and says why. The context is for what comes before the tests.
func ForTests(o Options, run func(context.Context, *Cluster) (code int, err error)) int {
	code, err := forTests(o, run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func forTests(o Options, run func(context.Context, *Cluster) (int, error)) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	c, err := Start(ctx, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	return run(ctx, c)
}
