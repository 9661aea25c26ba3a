// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package iptables stands in for the package of sigs.k8s.io/iptables-wrappers
// with what the kubelet uses of it. It finds no iptables, so the kubelet
// creates no rules.
package iptables

import (
	"context"
	"time"
)

type (
	Chain        string
	Table        string
	RulePosition string
	Protocol     string
	Mode         string
)

const (
	UseInstalledMode Mode = ""

	TableNAT    Table = "nat"
	TableFilter Table = "filter"
	TableMangle Table = "mangle"

	ChainInput  Chain = "INPUT"
	ChainOutput Chain = "OUTPUT"

	Prepend RulePosition = "-I"
	Append  RulePosition = "-A"
)

// Interface is what the kubelet calls.
type Interface interface {
	EnsureChain(ctx context.Context, table Table, chain Chain) (bool, error)
	EnsureRule(ctx context.Context, position RulePosition, table Table, chain Chain, args ...string) (bool, error)
	IsIPv6() bool
	Protocol() Protocol
	Monitor(ctx context.Context, canary Chain, tables []Table, reload func(), interval time.Duration)
}

// NewBestEffort returns nothing, as on a machine without iptables.
func NewBestEffort(context.Context, Mode) map[Protocol]Interface { return nil }
