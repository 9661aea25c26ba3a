// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestServersAreParsedFromTheFlag(t *testing.T) {
	for text, want := range map[string]Server{
		"main=http://localhost:9090":                             {Name: "main", URL: "http://localhost:9090"},
		"a-1=https://thanos.example/prefix/,token-file=/t":       {Name: "a-1", URL: "https://thanos.example/prefix/", TokenFile: "/t"},
		"b=https://[::1]:9090,ca-file=/c=d,token-file=/run/t,ok": {},
		"b=https://[::1]:9090,ca-file=/c=d,token-file=/run/t":    {Name: "b", URL: "https://[::1]:9090", CAFile: "/c=d", TokenFile: "/run/t"},
	} {
		got, err := ParseServer(text)
		assert.That(t, (err == nil) == (want != Server{}) && (err != nil || got == want), "%s: got %+v, %v; want %+v", text, got, err, want)
	}

	for text, want := range map[string]string{
		"":                                     "must be name=URL",
		"http://localhost:9090":                "must be name=URL",
		"Main=http://localhost":                "must be name=URL",
		strings.Repeat("a", 64) + "=http://a":  "must be name=URL",
		"main=":                                "is not a URL",
		"main=localhost:9090":                  "is not a URL",
		"main=file:///etc/passwd":              "is not a URL",
		"main=http://":                         "is not a URL",
		"main=http://:9090":                    "is not a URL",
		"main=https://user:secret@localhost":   "the URL has a user",
		"main=http://localhost?query=1":        "no query",
		"main=http://localhost#x":              "no fragment",
		"main=http://localhost,token-file=/t":  "need an https URL",
		"main=http://localhost,ca-file=/t":     "need an https URL",
		"main=https://a,ca-file=/t,ca-file=/u": "one ca-file=FILE",
		"main=https://a,ca-file=":              "one ca-file=FILE",
		"main=https://a,key=/t":                "one ca-file=FILE",
	} {
		if _, err := ParseServer(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// otherCA is a certificate that signs nothing.
const otherCA = `-----BEGIN CERTIFICATE-----
MIIBfDCCASGgAwIBAgIUdB3E0DIe2ANGsk+rxnEn8pVXqnQwCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHYW5vdGhlcjAgFw0yNjExMjMwMzUxMDFaGA8yMTI2MTAzMDAz
NTEwMVowEjEQMA4GA1UEAwwHYW5vdGhlcjBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABBJU8n8sEfDeD5if+rRBhhbP4KzWPBob7Y53BrX4kN+DbEjW5sKxHmSEThvO
eJ4UTFdOyqYE+lmTQ8KNXRLICZujUzBRMB0GA1UdDgQWBBQNwliKWgEu10xhyxHl
V0FD6eoydzAfBgNVHSMEGDAWgBQNwliKWgEu10xhyxHlV0FD6eoydzAPBgNVHRMB
Af8EBTADAQH/MAoGCCqGSM49BAMCA0kAMEYCIQCyXkG6aY4TTQ+rzbm9/va2B4Hr
Pdhmv21WX21jrH0t/wIhAPo9uyzNnUaPJhieDDvQET7NSkgtafGZEQPI9bLvZ+Ep
-----END CERTIFICATE-----`
