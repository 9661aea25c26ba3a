// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"

	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// log returns a logger with a configuration's attributes, which docs/operating.md, Logs, lists.
func (a *Agent) log(c trial.Config) *slog.Logger {
	if c.IsLocal() {
		return a.o.Log.With("uid", "")
	}
	log := a.o.Log.With("uid", c.Revision, "namespace", c.Namespace, "name", c.Name)
	if c.Rollout.Name != "" {
		log = log.With("rollout", c.Rollout.Name, "revision", c.Rollout.Revision)
	}
	return log
}
