// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// Server is a Prometheus server, or another server with its HTTP API.
type Server struct {
	Name      string // that gates refer to
	URL       string // http or https, with the path under which its API is served
	TokenFile string // with a bearer token, read for each request; empty: none
	CAFile    string // with the PEM certificates that may sign the server's, read for each request; empty: those of the system
	// Transport sends the requests; nil: over connections to the URL. With
	// another one, CAFile has no effect.
	Transport http.RoundTripper
}

// ParseServer parses the value of a flag:
// name=URL[,token-file=FILE][,ca-file=FILE].
func ParseServer(text string) (Server, error) {
	name, rest, _ := strings.Cut(text, "=")
	settings := strings.Split(rest, ",")
	s := Server{Name: name, URL: settings[0]}
	if len(validation.IsDNS1123Label(name)) > 0 {
		return s, fmt.Errorf("must be name=URL[,token-file=FILE][,ca-file=FILE], where the name has at most 63 lower-case letters, digits and "+
			"dashes, not %q", text)
	}

	for _, setting := range settings[1:] {
		key, file, _ := strings.Cut(setting, "=")
		to := map[string]*string{"token-file": &s.TokenFile, "ca-file": &s.CAFile}[key]
		if to == nil || file == "" || *to != "" {
			return s, fmt.Errorf("%s: after the URL, there may be one token-file=FILE and one ca-file=FILE, not %q", name, setting)
		}

		*to = file
	}

	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return s, fmt.Errorf("%s: %q is not a URL such as https://prometheus.monitoring.svc:9090", name, s.URL)
	case u.User != nil:
		return s, fmt.Errorf("%s: the URL has a user, which everyone who sees the flag can read: use token-file=FILE", name)
	case u.RawQuery != "" || u.Fragment != "":
		return s, fmt.Errorf("%s: the URL must have no query and no fragment", name)
	case u.Scheme == "http" && (s.TokenFile != "" || s.CAFile != ""):
		return s, fmt.Errorf("%s: token-file and ca-file need an https URL: a token sent over http can be read on the way", name)
	}

	return s, nil
}

// newHTTPClient returns a client with the limits of this package.
func newHTTPClient(s Server) *http.Client {
	return &http.Client{
		Transport: &transport{server: s},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the server answers with a redirect, which is not followed: configure the address of the API itself")
		},
	}
}

// transport sends requests with the token and limits the answers. Each request
// has its own connection: the CA file may have changed.
type transport struct{ server Server }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base, err := t.current()
	if err != nil {
		return nil, err
	}

	if t.server.TokenFile != "" {
		token, err := readSmall(t.server.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}

		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	}

	answer, err := base.RoundTrip(r)
	if err != nil {
		return nil, err
	}

	if kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); kind == "text/html" && answer.StatusCode/100 != 3 {
		_ = answer.Body.Close() // nobody reads a web page
		return nil, fmt.Errorf("a proxy or a login page answers in its place (a web page, HTTP %d): --prometheus-server needs the address of "+
			"the API, "+
			"and a token-file if that asks for a login", answer.StatusCode)
	}

	answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)

	return answer, nil
}

// current returns a transport that trusts what the CA file has now.
func (t *transport) current() (http.RoundTripper, error) {
	if t.server.Transport != nil {
		return t.server.Transport, nil
	}

	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.server.CAFile != "" {
		roots, err := readSmall(t.server.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the CA certificates: %w", err)
		}

		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(roots)) {
			return nil, fmt.Errorf("%s has no PEM certificate", t.server.CAFile)
		}
	}

	return &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		DialContext:     (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSClientConfig: config, TLSHandshakeTimeout: 5 * time.Second, ForceAttemptHTTP2: true,
		DisableCompression: true, MaxResponseHeaderBytes: maxHeaders, DisableKeepAlives: true,
	}, nil
}

// maxFile limits token and CA files, in bytes.
const maxFile = 1 << 20

func readSmall(path string) (string, error) {
	data, err := atomicfile.ReadBounded(path, maxFile)
	switch {
	case err != nil:
		return "", err
	case len(strings.TrimSpace(string(data))) == 0:
		return "", fmt.Errorf("%s is empty", path)
	}

	return string(data), nil
}
