package source

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestANodeThatTakesNothingIsAnnouncedOnceAndIsContent(t *testing.T) {
	name := newName("announced")
	client := newClient(t, nodeKubeconfig(t, name))
	for range 2 { // the second one finds it
		Announce(t.Context(), client, name, quiet())
		nc := &v1alpha1.NodeConfig{}
		if _, err := admin.do(t.Context(), request{verb: "GET", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", name: name}, nc); err != nil {
			t.Fatal(err)
		}
		if nc.Spec.ConfigSource != nil || nc.Generation != 1 {
			t.Errorf("spec is %+v at generation %d, want an empty one at 1", nc.Spec, nc.Generation)
		}
	}
}

func TestAnnouncingEndsWithItsContextWhenThereIsNoAPI(t *testing.T) {
	client := newClient(t, filepath.Join(t.TempDir(), "none"))
	stop := background(t, func(ctx context.Context) { Announce(ctx, client, "nobody", quiet()) })
	stop()
}

func TestTheKubeletIsShownTheNodesCertificate(t *testing.T) {
	client := newClient(t, nodeKubeconfig(t, newName("configz")))
	seen := ""
	kubelet := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = r.TLS.PeerCertificates[0].Subject.Organization[0]
	}))
	kubelet.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	kubelet.StartTLS() // with a certificate that nobody signed
	defer kubelet.Close()
	transport, err := client.KubeletTransport()
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Transport: transport}).Get(kubelet.URL)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if seen != "system:nodes" {
		t.Errorf("the kubelet saw organization %q, want system:nodes", seen)
	}
}

func TestWithoutAKubeconfigThereIsNoCertificateToShow(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	client := newClient(t, missing)
	if _, err := client.KubeletTransport(); err == nil || err.Error() != "kubeconfig "+missing+": stat "+missing+": no such file or directory" {
		t.Errorf("the error is %v", err)
	}
}
