// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package output keeps what goroutines or processes of a test print. It must
// not know what that means.
package output

import (
	"bytes"
	"sync"
)

// Buffer is a bytes.Buffer that several goroutines may write and read. The zero
// value is empty.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends p; the error is always nil.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns everything that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
