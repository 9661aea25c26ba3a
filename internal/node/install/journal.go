// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// journalLines is enough to see why a service ended.
const journalLines = 20

// Journal returns the last log lines of a unit; "" if there is no journal.
func Journal(ctx context.Context, u Unit) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, "journalctl", "--unit="+u.Name, "--boot", "--lines="+strconv.Itoa(journalLines), "--no-pager",
		"--output=cat", "--quiet").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
