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

// Mask returns a copy of a configuration (with the API's names, see Canonical) for display: without the values of
// staticPodURLHeader, and with only scheme and host of staticPodURL. The copy shares other values.
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

// maskURL keeps scheme and host and shows whether there was more. A token can be in any other part, including the
// path.
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
	// secretName matches the name of a field or a flag whose value is a credential, or can contain one.
	secretName = regexp.MustCompile(`(?i)(password|passwd|passphrase|token|secret|credentials?|headers?|(api|access|secret|private|account|encryption)[_-]?key)$`)
	// urlPath matches a URL with a path or a query, where webhooks and servers of manifests have their credentials.
	urlPath = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^/\s,?#"'@]*@)?([^/\s,?#"']+)([/?#][^\s,"']+)`)
)

// SecretName reports whether a field or a flag of this name holds a credential, or can contain one.
func SecretName(name string) bool { return secretName.MatchString(name) }

// MaskArguments returns a command line for display: without the values of flags that SecretName names, and with only scheme and host
// of URLs.
func MaskArguments(args []string) []string {
	out := slices.Clone(args)
	next := false // the value of a flag is the next argument
	for i, text := range args {
		name, _, hasValue := strings.Cut(text, "=")
		switch flag := strings.HasPrefix(name, "-"); {
		case next && !flag:
			out[i] = masked
		case flag && hasValue && SecretName(name):
			out[i] = name + "=" + masked
		default:
			out[i] = urlPath.ReplaceAllString(text, "${1}${2}/"+masked)
		}
		next = strings.HasPrefix(name, "-") && !hasValue && SecretName(name)
	}
	return out
}

// Secrets are texts of a command line and of configurations that no message may contain, and what replaces them.
type Secrets struct{ texts *strings.Replacer }

// SecretsOf returns what MaskArguments and Mask mask. Values of less than 6 bytes are left out: other words contain them.
func SecretsOf(args []string, configs ...map[string]any) Secrets {
	const shortest = 6
	var pairs []string
	next := false
	for _, config := range configs {
		args = append(slices.Clip(args), secretArguments(config)...)
	}
	for _, text := range args {
		name, value, hasValue := strings.Cut(text, "=")
		if next && !strings.HasPrefix(text, "-") {
			value, hasValue = text, true
		}
		if hasValue && (next || SecretName(name)) {
			// A header is NAME:VALUE, and a flag can have several.
			for _, header := range strings.Split(value, ",") {
				if _, secret, _ := strings.Cut(header, ":"); len(secret) >= shortest {
					pairs = append(pairs, secret, masked)
				}
			}
			if len(value) >= shortest {
				pairs = append(pairs, value, masked)
			}
		}
		for _, u := range urlPath.FindAllStringSubmatch(text, -1) {
			pairs = append(pairs, u[2]+u[3], u[2]+"/"+masked)
		}
		next = strings.HasPrefix(name, "-") && !hasValue && SecretName(name)
	}
	return Secrets{strings.NewReplacer(pairs...)}
}

// secretArguments returns the fields of a configuration that Mask masks, at any depth, as arguments.
func secretArguments(config map[string]any) (args []string) {
	for name, value := range config {
		inner, _ := value.(map[string]any)
		switch {
		case strings.EqualFold(name, urlField):
			args = append(args, fmt.Sprint(value))
		case strings.EqualFold(name, headerField):
			for _, values := range inner {
				all, _ := values.([]any)
				for _, v := range append(all, values) {
					if text, ok := v.(string); ok {
						args = append(args, "--header=:"+text)
					}
				}
			}
		default:
			args = append(args, secretArguments(inner)...)
		}
	}
	return args
}

// Hide returns a text without the secrets, and without what MaskText finds.
func (s Secrets) Hide(text string) string {
	if s.texts != nil {
		text = s.texts.Replace(text)
	}
	return MaskText(text)
}
