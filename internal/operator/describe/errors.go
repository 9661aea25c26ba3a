// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// explanation says what an error of the API means and what to do next.
type explanation struct {
	// raw is the part of the error's chain that what replaces.
	raw error
	// what says what happened and why; empty: the error's own words do.
	what string
	next string
}

// advised is an error in other words.
type advised struct {
	err   error
	words string
}

func (a *advised) Error() string { return a.words }
func (a *advised) Unwrap() error { return a.err }

// WithAdvice returns an error of the API in plain words, and in further lines
// what to do next. Other errors are returned unchanged. version is the version
// of this program; roles are the roles of evenkeel that the command needs, as
// far as they are known.
func WithAdvice(err error, version string, roles ...string) error {
	e, ok := explain(err, version, roles)
	if !ok {
		return err
	}

	return &advised{err, e.in(err.Error()) + "\n" + e.next}
}

// Brief returns an error of the API in plain words, without advice.
func Brief(err error) string {
	if e, ok := explain(err, "", nil); ok {
		return e.in(err.Error())
	}

	return err.Error()
}

// explain returns the explanation of an error of the API. ok is false for other
// errors.
func explain(err error, version string, roles []string) (e explanation, ok bool) {
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, context.Canceled):
		return explanation{next: "the command was interrupted: run it again"}, true
	case meta.IsNoMatchError(err):
		return explanation{beginning(err, "unable to retrieve the complete list of server APIs: ", "no matches for "),
			"the cluster does not serve " + v1alpha1.GroupVersion.String(),
			"install evenkeel's API with: kubectl apply -f install.yaml\n" +
				"if it is installed, the API server is overloaded or starting: run the command again in a minute\n" +
				"or this is another cluster: kubectl config current-context; choose one with --context"}, true
	case errors.As(err, &status):
		return ofStatus(status, err, version, roles)
	}

	if e, ok := ofConnection(err); ok {
		return e, true
	}

	return ofAnswer(err)
}

// ofStatus explains an answer of the API server, or of something that answers
// in its place.
func ofStatus(status apierrors.APIStatus, err error, version string, roles []string) (explanation, bool) {
	s := status.Status()
	raw, _ := status.(error)
	foreign := apierrors.HasStatusCause(raw, metav1.CauseTypeUnexpectedServerResponse)
	switch {
	case apierrors.IsUnauthorized(err):
		return explanation{raw, "the API server does not accept your credentials (401 Unauthorized): they are missing, have expired, or are of " +
			"another cluster",
			"log in again, or choose another --context, --kubeconfig or --token; kubectl auth whoami shows as whom you are logged in"}, true
	case foreign:
		return ofForeign(raw, s), true
	case apierrors.IsForbidden(err):
		return ofForbidden(s, roles), true
	case apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "strict decoding error: unknown field"):
		return explanation{next: "the cluster's CRDs are older than this kubectl-evenkeel (" + version + "): kubectl apply -f install.yaml"}, true
	case apierrors.IsTooManyRequests(err):
		return explanation{next: "the API server is overloaded, or limits your requests: run the command again in a minute"}, true
	case s.Code >= 500:
		return explanation{next: "the API server has a problem of its own: run the command again in a minute; kubectl get --raw " +
			"'/readyz?verbose' shows what is wrong"}, true
	}

	return explanation{}, false
}

// noise begins the errors of a client that finds out what a server serves. It
// says nothing to users.
var noise = []string{"failed to get server groups: ", "failed to get API group resources: ",
	"unable to retrieve the complete list of server APIs: ", v1alpha1.GroupVersion.String() + ": "}

// in returns the text of an error with what in place of the raw part.
func (e explanation) in(text string) string {
	if e.what == "" {
		return text
	}

	before, after, found := "", "", false
	if e.raw != nil {
		before, after, found = strings.Cut(text, e.raw.Error())
	}
	if !found {
		return e.what + " (" + text + ")"
	}

	for _, words := range noise {
		before = strings.ReplaceAll(before, words, "")
	}

	return before + e.what + after
}

// mostBody is how much of an answer that is not the API server's is shown.
const mostBody = 100

var (
	markup = regexp.MustCompile(`(?s)<(?:script|style).*?</(?:script|style)>|<[^>]*>`)
	title  = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)
)

// ofForeign explains an answer that lacks the Status of an API server.
func ofForeign(raw error, s metav1.Status) explanation {
	body := ""
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			if c.Type == metav1.CauseTypeUnexpectedServerResponse {
				body = c.Message
			}
		}
	}

	if d := s.Details; s.Code == http.StatusNotFound && d != nil && d.Group == v1alpha1.GroupName &&
		strings.TrimSpace(body) == "404 page not found" {
		return explanation{raw, fmt.Sprintf("the API server does not serve %s.%s: its CustomResourceDefinition is missing", d.Kind, d.Group),
			"kubectl apply -f install.yaml creates it; if it exists, something else answers in place of the API server: " + checkServer}
	}

	if strings.Contains(body, "HTTP request to an HTTPS server") {
		return explanation{raw, "the server expects https, and the kubeconfig or --server says http",
			"use https:// in the server's address; " + checkServer}
	}

	if body == "unknown" { // the client library has not read it, because it is no text: it can be an API server's Status
		if s.Code == http.StatusForbidden {
			return explanation{raw, "the API server, or a proxy in front of it, refuses this user everything (HTTP 403 Forbidden)",
				"log in, or choose another --context, --kubeconfig or --token, or omit --as, which needs the permission to impersonate; kubectl get " +
					"--raw /api shows the answer"}
		}

		return explanation{raw, fmt.Sprintf("the API server, or a proxy in front of it, answered HTTP %d %s", s.Code,
			http.StatusText(int(s.Code))),
			retryLater + "kubectl get --raw /api shows the answer; " + checkServer}
	}

	if m := title.FindStringSubmatch(body); m != nil {
		body = m[1]
	} else {
		body = markup.ReplaceAllString(body, " ")
	}

	answer := fmt.Sprintf("HTTP %d %s", s.Code, http.StatusText(int(s.Code)))
	if body = printable.Truncate(printable.Line(body), mostBody); body != "" && !strings.Contains(answer, body) {
		answer += fmt.Sprintf(": %q", body)
	}

	e := explanation{raw: raw, what: "the answer is not from a Kubernetes API server (" + strings.TrimSpace(answer) + "): "}
	switch {
	case s.Code >= 500:
		e.what += "a proxy or load balancer answers in its place, because it does not reach the API server"
		e.next = "if the API server is up, " + retryLater + checkServer
	case s.Code == http.StatusTooManyRequests:
		e.what += "a proxy or load balancer limits your requests"
		e.next = retryLater + checkServer
	case s.Code == http.StatusForbidden:
		e.what += "a proxy or firewall refuses the request; permissions in the cluster do not matter"
		e.next = "log in to the proxy, or go around it; " + checkServer
	default:
		e.what += "the address is wrong, or a proxy answers in its place"
		e.next = checkServer
	}

	return e
}

// undecodable are the errors of the client about answers that are no objects of
// the API.
var undecodable = regexp.MustCompile(`serializer for \S* ?\S* ?doesn't exist|0-length response with status code: .*|couldn't get version/kind; json parse error: .*`)

// ofAnswer explains an answer that was understood as success, but cannot be
// decoded.
func ofAnswer(err error) (explanation, bool) {
	e := explanation{
		what: "the answer is not from a Kubernetes API server: it is no object of the API; a proxy or a login page answers in its place, or " +
			"the address is wrong",
		next: "log in to the proxy, or go around it; " + checkServer,
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && strings.Contains(err.Error(), noise[0]) {
		e.raw = syntax
		return e, true
	}

	if words := undecodable.FindString(err.Error()); words != "" {
		e.raw = errors.New(words)
		return e, true
	}

	return explanation{}, false
}

const (
	checkServer = "check --context, --kubeconfig and --server: kubectl cluster-info shows the server that they name"
	retryLater  = "try again in a minute; "
)

// ofConnection explains an error of the connection to the API server. ok is
// false for other errors, also for those of a listener of this program.
func ofConnection(err error) (e explanation, ok bool) {
	var request *url.Error
	var network *net.OpError
	switch broken := beginning(err, "stream error: ", "http2: "); {
	case broken != nil:
		return explanation{broken, "the API server broke off its answer",
			"it is overloaded or restarting: run the command again in a minute"}, true
	case errors.As(err, &request):
		e.raw = request
	case errors.As(err, &network) && network.Op != "listen":
		e.raw = network
	case timeIsUp(err) && (errors.Is(err, io.EOF) || strings.HasSuffix(err.Error(), "EOF") || strings.HasSuffix(err.Error(), "reset by peer")):
		return explanation{deadline(err), "the API server cannot be reached: it closed every connection before it answered, until the time " +
			"was up",
			"it may be restarting, or a proxy in front of it lost it: " + retryLater + checkServer}, true
	case timeIsUp(err):
		return explanation{deadline(err), "the API server did not answer in time",
			retryLater + "--request-timeout sets a longer limit; " + checkServer}, true
	default:
		return e, false
	}

	server := serverOf(request, network)
	if e.what, e.next = ofCertificate(err, server); e.what != "" {
		return e, true
	}

	var name *net.DNSError
	var timeout net.Error
	switch _, plugin, fails := strings.Cut(err.Error(), "getting credentials: "); {
	case fails:
		e.what = "the program that your kubeconfig names for credentials failed: " + plugin
		e.next = "install it or log in with it again, or choose another --context or --kubeconfig: kubectl config view --minify shows its name " +
			"(exec)"
	case errors.As(err, &name):
		e.what = fmt.Sprintf("the name of the API server, %s, cannot be resolved", name.Name)
		e.next = "is this machine's network or VPN up? " + checkServer
	case strings.HasSuffix(err.Error(), "redirects"):
		e.what = server + " redirects without end: a proxy or a login page answers in place of the API server"
		e.next = "log in to the proxy, or go around it; " + checkServer
	case errors.Is(err, syscall.ECONNREFUSED):
		e.what = fmt.Sprintf("the API server cannot be reached: %s refuses connections, because nothing listens there", server)
		e.next = "is the API server up? If it restarts, try again in a minute; otherwise " + checkServer
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		e.what = fmt.Sprintf("the API server cannot be reached: there is no route to %s", server)
		e.next = "is this machine's network or VPN up? " + checkServer
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		e.what = fmt.Sprintf("the API server cannot be reached: %s did not answer in time", server)
		e.next = "is this machine's network or VPN up? If the API server is slow, --request-timeout sets a longer limit; otherwise " + checkServer
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		e.what = fmt.Sprintf("the API server cannot be reached: %s closed the connection before it answered", server)
		e.next = "it may be restarting, or a proxy in front of it lost it: " + retryLater + checkServer
	default:
		e.what = fmt.Sprintf("the API server cannot be reached at %s: %s", server, innermost(e.raw))
		e.next = "is it up? " + checkServer
	}

	return e, true
}

// ofCertificate explains a failure of TLS; what is empty for others.
func ofCertificate(err error, server string) (what, next string) {
	var unknown x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return server + " answers in plain HTTP, and the kubeconfig says https: this is not the secure port of an API server", checkServer
	case errors.As(err, &unknown):
		return "the certificate of " + server + " is signed by an authority that your kubeconfig does not trust: the kubeconfig is old or of " +
				"another cluster, or a proxy intercepts the connection",
			"get a new kubeconfig of this cluster; certificate-authority in it must name the cluster's CA"
	case errors.As(err, &hostname):
		return fmt.Sprintf("the certificate of %s is not for this name: %s", server, strings.TrimPrefix(hostname.Error(), "x509: ")),
			"use a name or address in the certificate as the server, or set --tls-server-name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		c := invalid.Cert
		return fmt.Sprintf("the certificate of %s is not valid now: it is valid from %s to %s, and this machine's time is %s",
				server, c.NotBefore.UTC().Format(time.RFC3339), c.NotAfter.UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339)),
			"correct this machine's clock if it is wrong; otherwise renew the API server's certificate (kubeadm certs renew)"
	case errors.As(err, &invalid):
		return fmt.Sprintf("the certificate of %s cannot be used: %s", server,
			strings.TrimPrefix(invalid.Error(), "x509: ")), "get a new kubeconfig of this cluster, or renew the API server's certificate"
	case errors.As(err, &alert):
		return fmt.Sprintf("%s refuses your client certificate or this version of TLS (%v)", server,
			alert), "log in again, or get a new kubeconfig of this cluster: the certificate in it may have expired"
	}

	return "", ""
}

// serverOf returns the host and port of a request or a connection.
func serverOf(request *url.Error, network *net.OpError) string {
	if request != nil {
		if u, err := url.Parse(request.URL); err == nil && u.Host != "" {
			return u.Host
		}
	}

	if network != nil && network.Addr != nil {
		return network.Addr.String()
	}

	return "the server"
}

// rateLimiter begins the error of client-go for an attempt that could not begin
// in time. It has no type.
const rateLimiter = "client rate limiter Wait returned an error: "

// timeIsUp reports whether a request did not end in time, or its next attempt
// could not begin in time.
func timeIsUp(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), rateLimiter)
}

// deadline returns the part of the chain that says which attempts failed before
// the deadline.
func deadline(err error) error {
	return cmp.Or(beginning(err, context.DeadlineExceeded.Error(), rateLimiter), context.DeadlineExceeded)
}

// beginning returns the part of an error's chain whose text begins with one of
// these words, and nil if there is none. A request that failed with that part
// is returned as a whole.
func beginning(err error, words ...string) (whole error) {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if _, is := e.(*url.Error); is {
			whole = e
		}

		for _, w := range words {
			if strings.HasPrefix(e.Error(), w) {
				return cmp.Or(whole, e)
			}
		}
	}

	return nil
}

func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}

		err = next
	}
}
