// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheTableOfFieldsIsUpToDate(t *testing.T) {
	got := assert.Value(os.ReadFile(filepath.Join("..", "..", file)))(t)
	assert.That(t, string(got) == page(), "%s is not that of payload.Fields: make generate", file)
}
