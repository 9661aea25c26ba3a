package simulation

import (
	"time"

	"github.com/evenkeel/evenkeel/testkit/simapi"
)

type stats struct{ starts, changes, adopted int }

type checks struct {
	stats stats
}

func (c *checks) init() {}

func (w *world) observe(c simapi.Change) {
	w.checks.stats.changes++
	w.book.trace("api: %s %s by %s", c.Kind, c.Name, c.By)
}
func (w *world) checkStart(m *machine, a *agentProcess, p *process) { w.checks.stats.starts++ }
func (w *world) noteHealthy(m *machine, p *process)                 {}
func (w *world) crashedOnce(node string, content int64) bool        { return false }
func (w *world) checkAll() {
	select {
	case <-time.After(w.plan.lasts):
	case <-w.over:
	}
}
