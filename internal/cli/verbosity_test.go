// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

const someRollouts = `{"kind":"NodeConfigRolloutList","apiVersion":"evenkeel.dev/v1alpha1","items":[{"metadata":{"name":"w"},` +
	`"spec":{"template":{"kubelet":{"staticPodURLHeader":{"Authorization":["Bearer pod-swordfish-1"]}}}}}]}`

func TestVerbosityShowsRequests(t *testing.T) {
	s := httptest.NewServer(discovered(answer(200, "application/json", someRollouts)))
	t.Cleanup(s.Close)
	kubeconfig := kubeconfigOf(t, s.URL, &clientcmdapi.AuthInfo{})
	if got := evenkeelAs(t, kubeconfig, "rollout", "list", "-o", "name"); got.Err != "" {
		t.Errorf("without -v the command logs %q", got.Err)
	}

	for _, level := range []string{"-v=6", "-v6", "--v=6"} {
		got := evenkeelAs(t, kubeconfig, "rollout", "list", "-o", "name", level)
		if got.Code != 0 || !strings.Contains(got.Err, `verb="GET" url="`+s.URL) || !strings.Contains(got.Err, `/apis/evenkeel.dev/v1alpha1/nodeconfigrollouts?limit=500" status="200 OK"`) {
			t.Errorf("%s shows %q", level, got.Err)
		}
	}
}

// No level shows a credential: neither that of the user, nor one in an object.
func TestVerbosityMasksCredentials(t *testing.T) {
	var seen []string
	s := httptest.NewTLSServer(discovered(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		answer(200, "application/json", someRollouts)(w, r)
	}))
	t.Cleanup(s.Close)
	token := kubeconfigOf(t, s.URL, &clientcmdapi.AuthInfo{Token: "open-sesame-1"})
	password := kubeconfigOf(t, s.URL, &clientcmdapi.AuthInfo{Username: "ali", Password: "baba-40"})
	for _, level := range []string{"1", "6", "7", "8", "9", "10", "99"} {
		for _, kubeconfig := range []string{token, password} {
			got := evenkeelAs(t, kubeconfig, "rollout", "list", "--insecure-skip-tls-verify", "-v", level)
			for _, secret := range []string{"sesame", "baba", "YWxpOmJhYmEtNDA", "swordfish"} {
				assert.That(t, !strings.Contains(got.Err, secret), "-v %s shows the credential %s:\n%s", level, secret, got.Err)
			}

			assert.That(t, level != "10" || strings.Contains(got.Err, "masked"), "-v %s shows no headers:\n%s", level, got.Err)
		}
	}

	if all := strings.Join(seen, " "); !strings.Contains(all, "Bearer open-sesame-1") || !strings.Contains(all, "Basic YWxpOmJhYmEtNDA=") {
		t.Errorf("the credentials were not sent: %q", all)
	}
}
