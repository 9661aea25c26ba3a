// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestCredentialsInATextAreMasked(t *testing.T) {
	const (
		jwt = "eyJhbGciOiJSUzI1NiIsImtpZCI6IiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLW9mLXg"
		pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAA==\n-----END RSA PRIVATE KEY-----"
	)
	for text, want := range map[string]string{
		"":                                                        "",
		"Authorization: Bearer abc.def-123":                       "Authorization: masked",
		`Authorization=["Basic dXNlcjpwYXNz"]`:                    `Authorization=["masked"]`,
		"Proxy-Authorization: Basic eDp5":                         "Proxy-Authorization: masked",
		"used bearer 0123456789abcdef twice":                      "used bearer masked twice",
		"bearer abcdefghijklmnopqrstuvwxyz failed":                "bearer masked failed",
		"jwt " + jwt + ": refused":                                "jwt masked: refused",
		"token abcdef.0123456789abcdef is unknown":                "token masked is unknown",
		"key " + pem + " in file":                                 "key masked in file",
		"key " + strings.ReplaceAll(pem, "\n", `\n`) + " in file": "key masked in file",
		"cut -----BEGIN EC PRIVATE KEY-----\nMIIE":                "cut masked",
		`Get "https://user:pa55@host:6443/x": EOF`:                `Get "https://masked@host:6443/x": EOF`,
		"https://ghp@host":                                        "https://masked@host",
		"https://host/x?access_token=abc&y=1":                     "https://host/x?access_token=masked&y=1",
		`password="a b c" user="d"`:                               `password=masked user="d"`,
		`err="password=\"a\" x"`:                                  `err="password=masked x"`,
		`{"client_secret":"abc","x":"y"}`:                         `{"client_secret":"masked","x":"y"}`,
		`{\"password\": \"abc\",\"x\":1}`:                         `{\"password\": \"masked\",\"x\":1}`,
		"AKIAABCDEFGHIJKLMNOP":                                    "masked",
		"ghp_abcdefghijklmnopqrstuvwxyz0123456789":                "masked",
	} {
		assert.Equal(t, MaskText(text), want, text, "became")
	}
}

func TestErrorsThatNameNoCredentialStay(t *testing.T) {
	for _, text := range []string{
		`failed to run Kubelet: invalid configuration: cgroup-root ["does-not-exist"] doesn't exist`,
		"failed to load bootstrap token: no such file",
		"the bearer token file: permission denied",
		"open /var/lib/kubelet/pki/kubelet-client-current.pem: no such file or directory",
		`Get "https://10.0.0.1:6443/api/v1/nodes/n?resourceVersion=0": dial tcp 10.0.0.1:6443: connect: connection refused`,
		"token: unauthorized",
		"image registry.k8s.io/pause@sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc88d84b480cc47f72a21097",
		"-----BEGIN CERTIFICATE-----",
	} {
		assert.Equal(t, MaskText(text), text, text, "became")
	}
}
