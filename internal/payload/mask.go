package payload

import (
	"maps"
	"net/url"
	"strings"
)

// masked stands for a value that is a secret.
const masked = "masked"

// The fields that may hold credentials.
const (
	urlField    = "staticPodURL"
	headerField = "staticPodURLHeader"
)

// Mask returns a copy of a configuration (the API's names, Canonical) for people's eyes: without the values of
// staticPodURLHeader, and with nothing of staticPodURL after its host. What has no secrets is shared with config.
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

// maskURL keeps scheme and host, and tells whether there was more. A token can be anywhere else, in the path too.
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

// maskHeaders keeps the names: a header has a list of values.
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
