// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestMissingAccessIsAnErrorBeforeAnyAgentStarts(t *testing.T) {
	for _, tt := range []struct {
		code               int
		reason, text, want string
	}{
		{http.StatusNotFound, "NotFound", "the server could not find the requested resource", "the API server does not serve NodeConfigs: apply install.yaml first"},
		{http.StatusForbidden, "Forbidden", "nodeconfigs is forbidden: User system:node:x cannot get it", "nodes may not read NodeConfigs: apply install.yaml first"},
		{http.StatusInternalServerError, "InternalError", "on fire", "ask the API server as node "},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(tt.code)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, tt.text, tt.reason, tt.code)
		}))
		o := options(1)
		o.Config = &rest.Config{Host: server.URL}
		assert.ErrorHas(t, assert.Err(Start(t.Context(), o)), tt.want, tt.text)
		server.Close()
	}
}

func TestAnAgentWithoutWritableStateEndsAndIsCounted(t *testing.T) {
	o := options(1)
	o.Dir = t.TempDir()
	assert.NoError(t, os.WriteFile(filepath.Join(o.Dir, o.Prefix+"0"), nil, 0o600))
	f := start(t, o)
	states := f.States()
	assert.That(t, states["ended"] == 1, "the states are %v", states)
}
