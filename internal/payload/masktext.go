// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import "regexp"

// maskers find credentials in a text. Each replacement keeps what says of which kind the credential was.
var maskers = []struct {
	find    *regexp.Regexp
	replace string
}{
	// A private key, also one without its end, and with its line breaks as \n in a quoted string.
	{regexp.MustCompile(`(?s)-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`), masked},
	// A header in all usual spellings: "Authorization: Bearer x", Authorization=[Basic x], "Authorization":["x"].
	{regexp.MustCompile(`(?i)((?:proxy-)?authorization\\?"?\s*[:=]\s*[\["'\\]*)[^\]"'\\,;\n]+`), "${1}" + masked},
	{regexp.MustCompile(`(?i)\b(bearer\s+["'\\]*)(?:[a-z\-./]*[0-9_~+=][a-z0-9\-._~+/=]*|[a-z\-./]{20,})`), "${1}" + masked},
	// A JSON Web Token, such as that of a service account.
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_\-]+(?:\.[A-Za-z0-9_\-]*){1,4}`), masked},
	// A bootstrap token.
	{regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), masked},
	// The user information of a URL.
	{regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.\-]*://)(?:[^/\s"'@]*:[^\s"'@]*|[^/\s"'?#@]*)@`), "${1}" + masked + "@"},
	{regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`), masked},
	{regexp.MustCompile(`\bgh[a-z]_[A-Za-z0-9]{20,}`), masked},
	// name=value, --name=value, ?name=value and "name":"value".
	{regexp.MustCompile(`(?i)((?:password|passwd|passphrase|token|secret|signature|(?:api|access|secret|private|account)[_\-]?key)=)(?:\\?"(?:[^"\\]|\\[^"])*(?:\\?"|$)|'[^']*'|[^\s&"',;\\]+)`), "${1}" + masked},
	{regexp.MustCompile(`(?i)([?&](?:sig|key|code)=)[^\s&"'\\]+`), "${1}" + masked},
	{regexp.MustCompile(`(?i)((?:password|passwd|passphrase|token|secret|(?:api|access|secret|private|account)[_\-]?key)\\?["']\s*:\s*\\?["'])[^"'\\]+`), "${1}" + masked},
}

// MaskText returns a text without credentials, for display: private keys, bearer and bootstrap tokens, JSON Web Tokens,
// passwords in URLs, and values that are named as passwords, tokens or keys.
func MaskText(text string) string {
	for _, m := range maskers {
		text = m.find.ReplaceAllString(text, m.replace)
	}
	return text
}
