package source

import (
	"errors"
	"testing"
)

func TestEqualErrorsHaveEqualDescriptions(t *testing.T) {
	for said, want := range map[string]string{
		"read tcp 10.0.0.1:54321->10.0.0.2:6443: read: connection reset by peer":                  "x cannot be read: read tcp 10.0.0.2:6443: read: connection reset by peer; retrying",
		"read tcp [fd00::1%eth0]:54321->[fd00::2]:6443: i/o timeout":                              "x cannot be read: read tcp [fd00::2]:6443: i/o timeout; retrying",
		"dial tcp: lookup api on 10.0.0.10:53: read udp 10.1.1.1:4321->10.0.0.10:53: i/o timeout": "x cannot be read: dial tcp: lookup api on 10.0.0.10:53: read udp 10.0.0.10:53: i/o timeout; retrying",
	} {
		if got := describeError(errors.New(said), "x", ""); got != want {
			t.Errorf("%s", got)
		}
	}
}
