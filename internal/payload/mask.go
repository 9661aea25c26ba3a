// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// masked replaces secret values.
const masked = "masked"

// Fields that can contain credentials.
const (
	urlField    = "staticPodURL"
	headerField = "staticPodURLHeader"
)

// Mask returns a copy of a configuration (with the API's names, see Canonical)
// for display: without the values of staticPodURLHeader, and with only scheme
// and host of staticPodURL. The copy shares other values.
func Mask(config map[string]any) map[string]any {
	shown := maps.Clone(config)
	for name, value := range shown {
		switch {
		case strings.EqualFold(name, urlField):
			shown[name] = maskURL(value)
		case strings.EqualFold(name, headerField):
			shown[name] = maskHeaders(value)
		}
	}

	return shown
}

// maskURL keeps scheme and host and shows whether there was more. A token can
// be in any other part, including the path.
func maskURL(value any) any {
	text, ok := value.(string)
	if value == nil || ok && text == "" {
		return value
	}

	u, err := url.Parse(text)
	if !ok || err != nil || u.Scheme == "" || u.Host == "" {
		return masked
	}

	bare := url.URL{Scheme: u.Scheme, Host: u.Host}
	if text == bare.String() || text == bare.String()+"/" {
		return text
	}

	return bare.String() + "/" + masked
}

// maskHeaders keeps the names of the headers.
func maskHeaders(value any) any {
	headers, ok := value.(map[string]any)
	switch {
	case value == nil:
		return nil
	case !ok:
		return masked
	}

	names := make(map[string]any, len(headers))
	for name, values := range headers {
		if names[name] = values; !empty(values) {
			names[name] = []any{masked}
		}
	}

	return names
}

var (
	// headerNames are those in the value of a flag, such as a:x,b:y.
	headerNames = regexp.MustCompile(`(^|,)[^:,]*:`)
	// secretName matches the name of a field or a flag whose value is a
	// credential, or can contain one.
	secretName = regexp.MustCompile(`(?i)(password|passwd|passphrase|token|secret|credentials?|headers?|(api|access|secret|private|account|encryption)[_-]?key)$`)
	// urlPath matches a URL with a path or a query, where webhooks and servers
	// of manifests have their credentials.
	urlPath = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^/\s,?#"'@]*@)?([^/\s,?#"']+)([/?#][^\s,"']+)`)
)

// SecretName reports whether a field or a flag of this name holds a credential,
// or can contain one.
func SecretName(name string) bool { return secretName.MatchString(name) }

// MaskArguments returns a command line for display: without the values of flags
// that SecretName names, and with only scheme and host of URLs.
func MaskArguments(args []string) []string {
	out := slices.Clone(args)
	next := false // the value of a flag is the next argument
	for i, text := range args {
		name, _, hasValue := strings.Cut(text, "=")
		secret := strings.HasPrefix(name, "-") && SecretName(name)
		switch {
		case next && !strings.HasPrefix(name, "-"):
			out[i] = masked
		case secret && hasValue:
			out[i] = name + "=" + masked
		default:
			out[i] = urlPath.ReplaceAllString(text, "${1}${2}/"+masked)
		}

		next = secret && !hasValue
	}

	return out
}

// SecretsOf returns a function that removes from a text what MaskArguments and
// Mask mask of a command line and of configurations, wherever it stands, and
// what MaskText finds. Words of less than 6 bytes stay, because other words
// contain them.
func SecretsOf(args []string, configs ...map[string]any) func(text string) string {
	var secrets, pairs []string
	for i, shown := range MaskArguments(args) {
		if shown == args[i] {
			continue
		}

		flag, value, hasValue := strings.Cut(args[i], "=")
		if !hasValue && i > 0 {
			flag, value = args[i-1], flag
		}
		if strings.HasSuffix(flag, "header") { // the names of headers are no secrets
			value = headerNames.ReplaceAllString(value, "$1")
		}

		secrets = append(secrets, value)
	}

	for _, config := range configs {
		for name, value := range config {
			headers, _ := value.(map[string]any)
			switch {
			case strings.EqualFold(name, urlField):
				secrets = append(secrets, fmt.Sprint(value))
			case strings.EqualFold(name, headerField):
				for _, values := range headers { // their names are no secrets
					secrets = append(secrets, fmt.Sprint(values))
				}
			}
		}
	}

	for _, secret := range secrets {
		if u := urlPath.FindStringSubmatch(secret); u != nil {
			pairs = append(pairs, u[2]+u[3], u[2]+"/"+masked)
			continue
		}

		for _, word := range strings.FieldsFunc(secret, func(r rune) bool { return strings.ContainsRune(" ,:[]", r) }) {
			if len(word) >= 6 {
				pairs = append(pairs, word, masked)
			}
		}
	}

	known := strings.NewReplacer(pairs...)

	return func(text string) string { return MaskText(known.Replace(text)) }
}

// maskers find credentials in a text. Each replacement keeps what says of which
// kind the credential was.
var maskers = []struct {
	find    *regexp.Regexp
	replace string
}{
	// A private key, also one without its end, and with its line breaks as \n
	// in a quoted string.
	{regexp.MustCompile(`(?s)-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`), masked},
	// A header in all usual spellings: "Authorization: Bearer x",
	// Authorization=[Basic x], "Authorization":["x"].
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

// MaskText returns a text without credentials, for display: private keys,
// bearer and bootstrap tokens, JSON Web Tokens, passwords in URLs, and values
// that are named as passwords, tokens or keys.
func MaskText(text string) string {
	for _, m := range maskers {
		text = m.find.ReplaceAllString(text, m.replace)
	}

	return text
}
