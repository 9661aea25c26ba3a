// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Defaults of the kubelet.
const (
	defaultHealthzAddress = "127.0.0.1"
	defaultHealthzPort    = 10248
)

// HealthzURL returns the health endpoint of a kubelet with this configuration,
// or "" if it has none. For nil it returns the kubelet's default.
func (k *Kubelet) HealthzURL(effective Effective) string {
	address, port := cmp.Or(effective.String("healthzBindAddress"), defaultHealthzAddress), int64(defaultHealthzPort)
	if p, ok := effective.Int("healthzPort"); ok {
		port = p
	}
	if port <= 0 {
		return ""
	}

	// An unspecified address listens on all addresses.
	if ip := net.ParseIP(address); ip != nil && ip.IsUnspecified() {
		address = "127.0.0.1"
		if ip.To4() == nil {
			address = "::1"
		}
	}

	return "http://" + net.JoinHostPort(address, strconv.FormatInt(port, 10)) + "/healthz"
}

// healthTimeout limits one request. A slower kubelet counts as unhealthy.
const healthTimeout = 2 * time.Second

// Health checks the health of one kubelet over one persistent connection.
type Health struct {
	url    string
	client *http.Client
}

// NewHealth returns a client for a URL from HealthzURL.
func NewHealth(url string) *Health {
	return &Health{url: url, client: &http.Client{
		Timeout:   healthTimeout,
		Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: time.Second}).DialContext}, // without a proxy: the address is local
	}}
}

// Healthz returns nil if the kubelet reports that it is healthy.
func (h *Health) Healthz(ctx context.Context) error {
	body, err := get(ctx, h.client, h.url, 4<<10)
	if err != nil {
		return fmt.Errorf("healthz: %w", err)
	}
	if strings.TrimSpace(string(body)) != "ok" {
		return fmt.Errorf("healthz: %q", clip(string(body), 200))
	}

	return nil
}

// Close closes the idle connection.
func (h *Health) Close() { h.client.CloseIdleConnections() }

// StatusError is the error for an answer that is not 200 OK.
type StatusError struct {
	Code    int // of HTTP
	message string
}

func (e *StatusError) Error() string { return e.message }

// Configz reads the configuration of a running kubelet. base is its secure
// endpoint, such as https://127.0.0.1:10250, and client needs credentials for
// it. The error is a *StatusError if the kubelet refuses the request, and a *url.Error
// if it does not answer.
func Configz(ctx context.Context, client *http.Client, base string) (Effective, error) {
	body, err := get(ctx, client, strings.TrimSuffix(base, "/")+"/configz", maxEntry)
	if err != nil {
		return nil, fmt.Errorf("configz: %w", err)
	}

	var answer struct {
		KubeletConfig json.RawMessage `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("configz: %w", err)
	}
	if len(answer.KubeletConfig) == 0 {
		return nil, fmt.Errorf("configz: no kubeletconfig in %q", clip(string(body), 200))
	}

	config, err := decodeEffective(answer.KubeletConfig)
	if err != nil {
		return nil, fmt.Errorf("configz: %w", err)
	}

	return config, nil
}

// get returns a response body of at most limit bytes. Any status but 200 is an
// error.
func get(ctx context.Context, client *http.Client, url string, limit int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}

	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}

	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, limit))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, &StatusError{response.StatusCode, fmt.Sprintf("%s: %s", response.Status, clip(strings.TrimSpace(string(body)), 200))}
	}

	return body, nil
}
