// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command serve is the program of probed pods: it answers each HTTP request on
// port 8080 with 200, until SIGTERM.
package main

import (
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	go func() { log.Fatal(http.ListenAndServe(":8080", ok)) }()
	<-end
}
