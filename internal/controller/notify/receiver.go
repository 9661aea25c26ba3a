// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// Receiver is a webhook, as the controller's flag --notify defines it.
type Receiver struct {
	Name    string // for logs and metrics: the URL can contain a secret
	URL     string
	KeyFile string // with the key of the signature; empty: events are not signed
	CAFile  string // with the CA certificates for the server; empty: those of the system
}

// ParseReceiver parses NAME=URL[,key-file=FILE][,ca-file=FILE].
func ParseReceiver(s string) (Receiver, error) {
	name, rest, ok := strings.Cut(s, "=")
	if !ok || len(validation.IsDNS1123Label(name)) > 0 {
		return Receiver{}, fmt.Errorf("must be NAME=URL[,key-file=FILE][,ca-file=FILE], with a name of lower-case letters, digits and dashes")
	}

	r := Receiver{Name: name}
	files := map[string]*string{"key-file": &r.KeyFile, "ca-file": &r.CAFile}
	for {
		i := strings.LastIndex(rest, ",")
		key, file, ok := strings.Cut(rest[i+1:], "=")
		into := files[key]
		if i < 0 || !ok || into == nil { // a comma of the URL
			break
		}
		if file == "" || *into != "" {
			return Receiver{}, fmt.Errorf("%s: %s must name one file", name, key)
		}

		*into, rest = file, rest[:i]
	}

	u, err := url.Parse(rest)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Fragment != "" {
		return Receiver{}, fmt.Errorf("%s: the URL must begin with https:// or http:// and have a host and no fragment", name)
	}
	if r.CAFile != "" && u.Scheme != "https" {
		return Receiver{}, fmt.Errorf("%s: a ca-file needs an https:// URL", name)
	}

	r.URL = rest

	return r, nil
}

const (
	// The headers of Standard Webhooks, https://www.standardwebhooks.com.
	idHeader        = "webhook-id"
	timeHeader      = "webhook-timestamp"
	signatureHeader = "webhook-signature"

	contentType   = "application/cloudevents+json; charset=utf-8"
	requestTime   = 10 * time.Second // for one request, with the answer
	mostHeaders   = 64 << 10         // bytes of an answer's headers
	mostFileBytes = 1 << 20
)

// errRejected means that the receiver does not want this event, whenever it
// comes.
var errRejected = errors.New("the receiver rejected the event")

// client sends events to one receiver.
type client struct {
	receiver  Receiver
	agent     string            // User-Agent
	transport http.RoundTripper // nil: a connection for each event
}

// send sends an event once. It reads the files each time, so that they can be
// changed.
func (c *client) send(ctx context.Context, id string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.receiver.URL, bytes.NewReader(body))
	if err != nil {
		return withoutURL(err)
	}

	request.Header.Set("Content-Type", contentType)
	request.Header.Set("User-Agent", c.agent)
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	request.Header.Set(idHeader, id)
	request.Header.Set(timeHeader, stamp)
	if c.receiver.KeyFile != "" {
		key, err := readKey(c.receiver.KeyFile)
		if err != nil {
			return fmt.Errorf("sign the event: %w", err) // never unsigned
		}

		request.Header.Set(signatureHeader, sign(key, id, stamp, body))
	}

	transport, err := c.connect()
	if err != nil {
		return err
	}

	sender := http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := sender.Do(request)
	if err != nil {
		return withoutURL(err)
	}

	_ = answer.Body.Close() // the status says whether the event has arrived
	switch code := answer.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code >= 300 && code < 400:
		return fmt.Errorf("the receiver answered %s: redirects are not followed, configure the final URL", status(code))
	case code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge, code == http.StatusUnsupportedMediaType,
		code == http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %s", errRejected, status(code))
	default:
		return fmt.Errorf("the receiver answered %s", status(code))
	}
}

// status describes a status code without the receiver's own words.
func status(code int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code)))
}

// connect returns a transport that trusts what the CA file has now.
func (c *client) connect() (http.RoundTripper, error) {
	if c.transport != nil {
		return c.transport, nil
	}

	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSHandshakeTimeout: requestTime,
		MaxResponseHeaderBytes: mostHeaders, DisableCompression: true, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if c.receiver.CAFile != "" {
		ca, err := atomicfile.ReadBounded(c.receiver.CAFile, mostFileBytes)
		if err != nil {
			return nil, fmt.Errorf("read the CA certificates: %w", err)
		}

		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("%s contains no PEM certificate", c.receiver.CAFile)
		}

		transport.TLSClientConfig.RootCAs = pool
	}

	return transport, nil
}

// sign returns the signature of a request by Standard Webhooks.
func sign(key []byte, id, stamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, stamp, body) // never fails
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// readKey returns the key in a file: whsec_ and the key in base64, as Standard
// Webhooks writes it.
func readKey(file string) ([]byte, error) {
	text, err := atomicfile.ReadBounded(file, mostFileBytes)
	if err != nil {
		return nil, err
	}

	encoded, prefixed := strings.CutPrefix(strings.TrimSpace(string(text)), "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !prefixed || err != nil || len(key) < minKey || len(key) > maxKey {
		return nil, fmt.Errorf("%s must contain whsec_ and a key of %d to %d bytes in base64: create one with: echo whsec_$(openssl rand "+
			"-base64 32)", file, minKey, maxKey)
	}

	return key, nil
}

// The limits of a key's length in Standard Webhooks.
const minKey, maxKey = 24, 64

// withoutURL removes the URL from an error: it can contain a secret, and errors
// are logged.
func withoutURL(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}

	return err
}
