package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestVerbosityShowsRequests(t *testing.T) {
	if got := evenkeel(t, "rollout", "list", "-o", "name"); got.err != "" {
		t.Errorf("without -v the command logs %q", got.err)
	}
	for _, level := range []string{"-v=6", "-v6", "--v=6"} {
		got := evenkeel(t, "rollout", "list", "-o", "name", level)
		if got.code != 0 || !strings.Contains(got.err, `verb="GET" url="https://127.0.0.1:`) || !strings.Contains(got.err, `/apis/evenkeel.dev/v1alpha1/nodeconfigrollouts?limit=500" status="200 OK"`) {
			t.Errorf("%s shows %q", level, got.err)
		}
	}
}

// No level shows a credential: neither that of the user, nor one in an object.
func TestVerbosityMasksCredentials(t *testing.T) {
	var seen []string
	s := httptest.NewTLSServer(discovered(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		answer(200, "application/json", `{"kind":"NodeConfigRolloutList","apiVersion":"evenkeel.dev/v1alpha1","items":[{"metadata":{"name":"w"},`+
			`"spec":{"template":{"kubelet":{"staticPodURLHeader":{"Authorization":["Bearer pod-swordfish-1"]}}}}}]}`)(w, r)
	}))
	t.Cleanup(s.Close)
	token := kubeconfigOf(t, s.URL, &clientcmdapi.AuthInfo{Token: "open-sesame-1"})
	password := kubeconfigOf(t, s.URL, &clientcmdapi.AuthInfo{Username: "ali", Password: "baba-40"})
	for _, level := range []string{"1", "6", "7", "8", "9", "10", "99"} {
		for _, kubeconfig := range []string{token, password} {
			got := evenkeelAs(t, kubeconfig, "rollout", "list", "--insecure-skip-tls-verify", "-v", level)
			for _, secret := range []string{"sesame", "baba", "YWxpOmJhYmEtNDA", "swordfish"} {
				if strings.Contains(got.err, secret) {
					t.Errorf("-v %s shows the credential %s:\n%s", level, secret, got.err)
				}
			}
			if level == "10" && !strings.Contains(got.err, "masked") {
				t.Errorf("-v %s shows no headers:\n%s", level, got.err)
			}
		}
	}
	if all := strings.Join(seen, " "); !strings.Contains(all, "Bearer open-sesame-1") || !strings.Contains(all, "Basic YWxpOmJhYmEtNDA=") {
		t.Errorf("the credentials were not sent: %q", all)
	}
}

// The API server sends built-in kinds in protobuf, whose dump in the log would hide credentials from the masking.
func TestVerbosityMasksCredentialsInConfigMaps(t *testing.T) {
	create(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "w-1", Labels: map[string]string{v1alpha1.LabelRollout: "masked", v1alpha1.LabelRevision: "1"}},
		Data:       map[string]string{"kubelet": header + "staticPodURLHeader: {Authorization: [Bearer pod-swordfish-2]}\n"},
	})
	createRollout(t, "masked", "masked", pods(50), nil)
	got := evenkeel(t, "rollout", "history", "masked", "-v=10")
	if got.code != 0 || !strings.Contains(got.err, "staticPodURLHeader") {
		t.Fatalf("exit %d, and the ConfigMap is not shown: %s", got.code, got.err)
	}
	for _, secret := range []string{"swordfish", "dfish-2"} {
		if i := strings.Index(got.err, secret); i >= 0 {
			t.Errorf("the credential is shown: %s", got.err[max(0, i-300):i+50])
		}
	}
}
