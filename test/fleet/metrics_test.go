// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
)

// scrape gets the metrics with a token, and returns the status code and the
// body; 0 and the error if nobody answers. The certificate is the controller's
// own.
func (p *process) scrape(t *testing.T, token string) (int, string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.metrics, nil)
	assert.NoError(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}

	answer, err := transport.RoundTrip(request)
	if err != nil {
		return 0, err.Error()
	}

	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	assert.NoError(t, err)

	return answer.StatusCode, string(body)
}

// token returns a token of a new ServiceAccount with a ClusterRole; empty:
// without one.
func token(t *testing.T, name, role string) string {
	t.Helper()
	create := func(o client.Object) {
		t.Helper()
		assert.NoError(t, kube.Create(t.Context(), o))
		t.Cleanup(func() { assert.OK(t, kube.Delete(context.Background(), o)) })
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	create(account)
	if role != "" {
		create(&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: name}},
		})
	}

	request := &authenticationv1.TokenRequest{}
	assert.NoError(t, kube.SubResource("token").Create(t.Context(), account, request))

	return request.Status.Token
}

// metricsOf returns the metrics of a controller, as Prometheus gets them.
func metricsOf(t *testing.T, p *process) string {
	t.Helper()
	reader := token(t, strings.ToLower(t.Name()), "evenkeel-metrics-reader")
	var body string
	assert.NoError(t, bed.Eventually(t.Context(), within, func(context.Context) error { // the role and the server take effect with a delay
		var code int
		code, body = p.scrape(t, reader)
		return assert.Unless(code == http.StatusOK, "the answer is %d: %s", code, body)
	}))

	return body
}

func TestMetricsAreForReadersOnly(t *testing.T) {
	t.Parallel()
	body := metricsOf(t, shared)
	assert.That(t, strings.Contains(body, "\nevenkeel_build_info{"), "these are not the controller's metrics: %.300s", body)
	for name, tt := range map[string]struct {
		token string
		want  int
	}{
		"no token":     {"", http.StatusUnauthorized},
		"a wrong one":  {"wrong", http.StatusInternalServerError}, // the library's answer
		"not a reader": {token(t, "metrics-not-a-reader", ""), http.StatusForbidden},
	} {
		code, body := shared.scrape(t, tt.token)
		assert.That(t, code == tt.want && !strings.Contains(body, "evenkeel_"),
			"%s: the answer is %d, want %d: %.300s", name, code, tt.want, body)
	}
}
