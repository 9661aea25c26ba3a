package rehearsal

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

func TestMissingAccessIsAnErrorBeforeAnyAgentStarts(t *testing.T) {
	for _, tt := range []struct {
		code               int
		reason, text, want string
	}{
		{http.StatusNotFound, "NotFound", "the server could not find the requested resource", "the API server does not serve NodeConfigs: apply install.yaml first"},
		{http.StatusForbidden, "Forbidden", "nodeconfigs is forbidden: User system:node:x cannot get it", "nodes may not read NodeConfigs: apply install.yaml first"},
		{http.StatusForbidden, "Forbidden", "users is forbidden: User a cannot impersonate resource users", "grant it the verb impersonate on users"},
		{http.StatusInternalServerError, "InternalError", "on fire", "ask the API server as node "},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(tt.code)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, tt.text, tt.reason, tt.code)
		}))
		o := options(1)
		o.Config = &rest.Config{Host: server.URL}
		if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.text, err, tt.want)
		}
		server.Close()
	}
}

func TestAnAgentWithoutWritableStateEndsAndIsCounted(t *testing.T) {
	o := options(1)
	o.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(o.Dir, o.Prefix+"0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := start(t, o)
	if states := f.States(); states["ended"] != 1 {
		t.Errorf("the states are %v", states)
	}
}
