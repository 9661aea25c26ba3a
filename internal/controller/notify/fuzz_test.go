// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"net/url"
	"testing"
)

// A receiver that is accepted has an http or https URL with a host; an error
// does not show the URL, which can have a secret.
func FuzzReceiver(f *testing.F) {
	for _, text := range []string{"a=https://b/c?d=e,f,key-file=/g,ca-file=/h", "a=http://b", "a=ftp://b", "=", "a=https://b,key-file=", "a=https://b,ca-file=x,ca-file=y", "a=http://b,ca-file=x", "a=https://%zz"} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseReceiver(text)
		if err != nil {
			return
		}

		u, err := url.Parse(r.URL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || r.CAFile != "" && u.Scheme != "https" || r.Name == "" {
			t.Errorf("%q was accepted as %+v", text, r)
		}
	})
}
