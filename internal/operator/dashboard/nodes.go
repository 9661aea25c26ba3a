// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// nodeDetail is the node panel of the page, as the output of `kubectl evenkeel
// node`.
type nodeDetail struct {
	Name  string          `json:"name"`
	Lines []describe.Line `json:"lines"`
	Next  []string        `json:"next"`
	// Commands can be copied where texts have them.
	Commands []string           `json:"commands"`
	Diff     string             `json:"diff,omitempty"` // the command that compares what it runs with its rollout; empty: none owns it
	Trial    *describe.RowTrial `json:"trial,omitempty"`
	OK       describe.RowStatus `json:"configOK"`
	Note     string             `json:"note,omitempty"`
	Log      logView            `json:"log"`

	describe.Standing
}

func (c *cluster) node(ctx context.Context, r *http.Request) (any, error) {
	now := time.Now()
	view, err := query.ViewNode(ctx, cachedReader{c.cache}, r.PathValue("name"))
	if err != nil {
		return nil, err
	}

	n := describe.NodeOf(view, now)
	d := nodeDetail{Name: n.Name, Lines: n.Lines(now), Trial: n.Trial, OK: n.ConfigOK, Standing: n.Standing,
		Log: c.logOf(ctx, "", n.Name, now)}
	d.Commands = commandsOf(n.Rollout, n.Name)
	if n.Rollout != "" {
		d.Diff = c.command("config", "diff", "node/"+n.Name, "rollout/"+n.Rollout)
	}

	if nc := view.Config; nc != nil {
		for _, b := range nc.Status.BadConfigs {
			if plainRevision.MatchString(b.Revision) { // the node writes it
				d.Commands = append(d.Commands, "evenkeel-agent forget "+b.Revision)
			}
		}
	}

	d.Cause, d.Why = printable.Line(d.Cause), printable.Line(d.Why)
	for _, words := range n.Next {
		d.Next = append(d.Next, printable.Line(words))
	}
	if n.AgentVersion != "" && n.AgentVersion != c.server.o.Version {
		d.Note = printable.Line(fmt.Sprintf("the agent has another version (%s) than this program (%s)", n.AgentVersion, c.server.o.Version))
	}

	return d, nil
}
