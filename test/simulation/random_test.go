// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	mathrand "math/rand"
	"math/rand/v2"
	"sync/atomic"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/google/uuid"
)

// jitter is what all libraries draw the jitter of delays from; the variable
// exists for tests.
//
//go:linkname jitter k8s.io/apimachinery/pkg/util/wait.jitterRand
var jitter func() float64

// seedLibraries makes what libraries draw follow from the seed. A jitter must
// not depend on what others draw: it depends on the time alone, because hardly
// two things happen at the same instant.
func seedLibraries(seed uint64) {
	jitter = func() float64 { return dice(seed, "jitter", time.Now().UnixNano()).Float64() }
	uuid.SetRand(&uuids{seed: seed})
	mathrand.Seed(int64(seed)) //nolint:staticcheck // client-go uses the global source
}

// uuids is where UUIDs come from: the names of controllers in the Lease.
type uuids struct {
	seed uint64
	n    atomic.Int64 // two controllers may start at the same instant
}

// Read implements io.Reader.
func (u *uuids) Read(p []byte) (int, error) {
	r := dice(u.seed, "uuid", time.Now().UnixNano(), u.n.Add(1))
	for i := range p {
		p[i] = byte(r.Uint32())
	}

	return len(p), nil
}

// dice returns random numbers that depend on the seed and the words alone: what
// happens to a request must not depend on the order in which goroutines ask.
func dice(seed uint64, words ...any) *rand.Rand {
	return rand.New(rand.NewPCG(seed, sum(words...)))
}

// sum returns a hash of words.
func sum(words ...any) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	add := func(b byte) { h = (h ^ uint64(b)) * 1099511628211 }
	number := func(n uint64) {
		for ; n > 0; n >>= 8 {
			add(byte(n))
		}
	}
	for _, word := range words {
		switch word := word.(type) {
		case string:
			for i := range len(word) {
				add(word[i])
			}
		case int:
			number(uint64(word))
		case int64:
			number(uint64(word))
		default:
			panic(fmt.Sprintf("no hash of %T", word))
		}

		add(0xff) // ends the word: no text contains it
	}

	return h
}

// between returns a random duration. Its nanoseconds are random too, so that
// hardly two things happen at the same instant.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)+1))
}

func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }
