package payload

import (
	"maps"
	"net/url"
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
