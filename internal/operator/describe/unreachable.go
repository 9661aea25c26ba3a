// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

const (
	checkServer = "check --context, --kubeconfig and --server: kubectl cluster-info shows the server that they name"
	retryLater  = "try again in a minute; "
)

// ofConnection explains an error of the connection to the API server. ok is false for other errors, also for those of a listener of
// this program.
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

// rateLimiter begins the error of client-go for an attempt that could not begin in time. It has no type.
const rateLimiter = "client rate limiter Wait returned an error: "

// timeIsUp reports whether a request did not end in time, or its next attempt could not begin in time.
func timeIsUp(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), rateLimiter)
}

// deadline returns the part of the chain that says which attempts failed before the deadline.
func deadline(err error) error {
	return cmp.Or(beginning(err, context.DeadlineExceeded.Error(), rateLimiter), context.DeadlineExceeded)
}

// beginning returns the part of an error's chain whose text begins with one of these words, and nil if there is none. A request that
// failed with that part is returned as a whole.
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
