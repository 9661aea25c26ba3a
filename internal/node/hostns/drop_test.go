// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hostns

import (
	"bufio"
	"bytes"
	"strings"
	"syscall"
	"testing"
)

// noCgo skips a test of a program that uses cgo.
func noCgo(t *testing.T, out []byte) {
	t.Helper()
	if strings.Contains(string(out), syscall.ENOTSUP.Error()) {
		t.Skip("this program uses cgo: set CGO_ENABLED=0")
	}
}

func TestDropLeavesNoThreadWithPrivileges(t *testing.T) {
	needRoot(t)
	out, _ := again(t, "drop").CombinedOutput() // its exit code is always 1
	noCgo(t, out)
	want := map[string]string{
		"Uid:": "65534 65534 65534 65534", "Gid:": "65534 65534 65534 65534", "Groups:": "", "NoNewPrivs:": "1",
		"CapInh:": "0000000000000000", "CapPrm:": "0000000000000000", "CapEff:": "0000000000000000", "CapAmb:": "0000000000000000",
	}
	found := map[string]int{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}

		if value, ok := want[fields[0]]; ok {
			found[fields[0]]++
			if got := strings.Join(fields[1:], " "); got != value {
				t.Errorf("%s is %q, want %q", fields[0], got, value)
			}
		}
	}

	for name := range want {
		if found[name] < 2 || found[name] != found["Uid:"] { // Go programs have several threads
			t.Errorf("%s is there %d times:\n%s", name, found[name], out)
		}
	}
}

func TestDropReportsAMissingPrivilege(t *testing.T) {
	needRoot(t)
	out, _ := again(t, "drop again").CombinedOutput() // its exit code is always 1
	noCgo(t, out)
	says(t, string(out), "refused: leave all groups: operation not permitted")
}
