// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package protocol is what the host and the program in the virtual machine
// agree on. It must not know how either works.
package protocol

// Port is the TCP port in the virtual machine.
const Port = 7000

// The paths. A file's path and its mode, in octal digits, are in the query.
const (
	RunPath  = "/run"
	FilePath = "/file"
	BootPath = "/boot" // answers the kernel's boot ID
)

// Result is the answer to a script.
type Result struct {
	Output string `json:"output"` // standard output and standard error
	Code   int    `json:"code"`   // -1 if a signal ended it
}
