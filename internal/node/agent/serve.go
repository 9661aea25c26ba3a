package agent

import (
	"net/http"
	"time"
)

// NewServer returns an HTTP server with limits that a slow or idle client cannot exhaust.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
}
