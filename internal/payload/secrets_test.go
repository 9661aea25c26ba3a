// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestArgumentsAreMaskedByTheNamesOfTheirFlags(t *testing.T) {
	got := MaskArguments([]string{"/usr/bin/kubelet", "--manifest-url-header=X-Vault-Token:s.abcdef,Y:b", "--manifest_url_header", "X:s.abcdef", "--manifest-url=https://me:pa55word@vault/v1/s.abcdef?x=1",
		"--manifest-url", "http://vault/s.abcdef", "--max-pods=250", "--authentication-token-webhook=true", "--container-runtime-endpoint=unix:///run/c.sock", "--api-key", "--v=2"})
	want := []string{"/usr/bin/kubelet", "--manifest-url-header=masked", "--manifest_url_header", "masked", "--manifest-url=https://vault/masked",
		"--manifest-url", "http://vault/masked", "--max-pods=250", "--authentication-token-webhook=true", "--container-runtime-endpoint=unix:///run/c.sock", "--api-key", "--v=2"}
	assert.That(t, slices.Equal(got, want), "%q, want %q", got, want)
}

// TestSecretsAreHiddenWhereverTheyStand quotes the values of secret flags and
// fields as a kubelet does, without their names.
func TestSecretsAreHiddenWhereverTheyStand(t *testing.T) {
	hide := SecretsOf([]string{"--manifest-url-header=X-Vault-Token:s.abcdef1,Y:s.abcdef2", "--manifest-url-header", "X:s.abcdef3", "--manifest-url=https://me:pa55word@vault:8200/v1/s.abcdef4?x=1", "--short-token=ab"},
		object{"staticPodURL": "https://pods/s.abcdef5", "staticPodURLHeader": object{"A": []any{"s.abcdef6"}, "B": "s.abcdef7"}},
		object{"StaticPodURL": "https://pods/s.abcdef8"})
	text := hide(`Get "https://vault:8200/v1/s.abcdef4?x=1": X-Vault-Token:s.abcdef1 [s.abcdef2 s.abcdef3] pods/s.abcdef5 s.abcdef6, "s.abcdef7" https://me:xxxxx@pods/s.abcdef8, token=1234567; table and cabin at /v1/pods`)
	assert.That(t, !strings.Contains(text, "s.abcdef") && !strings.Contains(text, "1234567"), "%s", text)
	for _, word := range []string{`Get "https://vault:8200/masked"`, "https://masked@pods/masked", "table and cabin at /v1/pods"} {
		assert.That(t, strings.Contains(text, word), "%s, want in it %s", text, word)
	}

	assert.Equal(t, SecretsOf(nil)("password=abc"), "password=masked", "without secrets")
}
