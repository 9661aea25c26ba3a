// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

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

// undecodable are the errors of the client about answers that are no objects of the API.
var undecodable = regexp.MustCompile(`serializer for \S* ?\S* ?doesn't exist|0-length response with status code: .*|couldn't get version/kind; json parse error: .*`)

// ofAnswer explains an answer that was understood as success, but cannot be decoded.
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
