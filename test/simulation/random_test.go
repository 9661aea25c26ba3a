package simulation

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// dice returns random numbers that depend on the seed and the words alone: what happens to a request must not depend on the
// order in which goroutines ask.
func dice(seed uint64, words ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, words...)
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// between returns a random duration. Its nanoseconds are random too, so that hardly two things happen at the same instant.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)+1))
}

func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }
