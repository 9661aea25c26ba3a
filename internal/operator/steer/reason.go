// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Reason returns a reason as a rollout stores it. The error says that it is too long.
func Reason(text string) (string, error) {
	reason := strings.TrimSpace(text)
	if n := utf8.RuneCountInString(reason); n > v1alpha1.MaxReason {
		return "", fmt.Errorf("the reason has %s, more than the limit of %d; nothing was changed", printable.Count(n, "character"),
			v1alpha1.MaxReason)
	}
	return reason, nil
}
