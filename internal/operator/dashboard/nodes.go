// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// nodeDetail is the node panel of the page, as the output of `kubectl evenkeel node`.
type nodeDetail struct {
	Name  string          `json:"name"`
	Lines []describe.Line `json:"lines"`
	Next  []string        `json:"next"`
	// Commands can be copied where texts have them.
	Commands []string           `json:"commands"`
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

// configView is a comparison of a node's configurations, field by field.
type configView struct {
	Columns []column   `json:"columns"`
	Fields  []fieldRow `json:"fields"`
	Same    int        `json:"same"` // number of omitted fields, which are equal in all columns
}

// column is one configuration: local, active, assigned, or the effective one of the kubelet.
type column struct {
	Title  string `json:"title"`
	Source string `json:"source,omitempty"`
	Not    string `json:"not,omitempty"` // why it is not known

	fields map[string]string // shown values by path; nil: not known
	known  bool
	whole  bool // fields that it does not set have the kubelet's defaults
}

// fieldRow is one field. A value is JSON, "masked", or empty: not set there, or not known.
type fieldRow struct {
	Field   string   `json:"field"`
	Values  []string `json:"values"`
	Differs bool     `json:"differs"`
}

// nodeConfig answers with the configurations of a node, with ?live including the effective one of its kubelet.
func (c *cluster) nodeConfig(ctx context.Context, r *http.Request) (any, error) {
	name := r.PathValue("name")
	p, err := query.GetPair(ctx, c.api, name)
	if err != nil {
		return nil, err
	}
	return c.compare(ctx, p, name, r.URL.Query().Has("live")), nil
}

func (c *cluster) compare(ctx context.Context, p fleet.Pair, name string, live bool) configView {
	local := column{Title: "Local", Source: "the node's own files and flags"}
	active := column{Title: "Active", Source: "the configuration that the node runs"}
	assigned := column{Title: "Assigned", Source: "the assigned configuration"}
	effective := column{Title: "Effective", Source: "the kubelet's answer"}

	runsLocal := p.Config != nil && fleet.HasReported(p.Config) && p.Config.Status.Active == nil
	if runsLocal {
		active.Source = "the node's own files and flags"
		active.Not = "the node runs its local configuration, which is not in the API: the effective configuration equals it"
	} else {
		active.set(query.NodeSide(ctx, c.api, name))
	}
	assigned.set(assignedSide(ctx, c.api, p))
	if !live {
		effective.Not = "not read from the kubelet"
	} else {
		effective.set(query.LiveSide(ctx, c.Config, name))
		effective.whole = true
	}
	switch {
	case runsLocal && effective.known:
		local.fields, local.known, local.whole = effective.fields, true, true
		local.Source = "the kubelet's answer, since the node runs its local configuration"
	case runsLocal:
		local.Not = "not in the API: read it from the kubelet"
	case active.known && !active.whole && effective.known:
		// A drop-in is merged over the local configuration: fields that it does not set have their local values.
		local.known, local.Source = true, "the kubelet's answer, without the fields that the drop-in sets"
		local.fields = maps.Clone(effective.fields)
		for field := range active.fields {
			delete(local.fields, field)
		}
		local.Not = "fields that the drop-in sets are not in the API: run evenkeel-agent status --effective on the node"
	default:
		local.Not = "not in the API: run evenkeel-agent status --effective on the node"
	}
	return mergeColumns(local, active, assigned, effective)
}

// set fills a column.
func (c *column) set(s query.Side, err error) {
	if err != nil {
		c.Not = printable.Line(err.Error())
		return
	}
	c.Source, c.known, c.whole = printable.Line(s.Source), true, s.Extent != query.Partial
	if s.Extent == query.Partial {
		c.Source += ", a drop-in"
	}
	c.fields = map[string]string{}
	for _, d := range describe.Changes(nil, s.Fields) {
		c.fields[d.Field] = d.B
	}
}

// assignedSide reads the configuration that a NodeConfig assigns.
func assignedSide(ctx context.Context, c client.Reader, p fleet.Pair) (query.Side, error) {
	if p.Config == nil {
		return query.Side{}, fmt.Errorf("the node has no NodeConfig")
	}
	ref := p.Config.Spec.ConfigSource.Content()
	if ref.Name == "" {
		return query.Side{}, fmt.Errorf("nothing is assigned: the node runs its local configuration")
	}
	where := fmt.Sprintf("ConfigMap %s/%s", ref.Namespace, ref.Name)
	var cm corev1.ConfigMap
	if err := c.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &cm); err != nil {
		return query.Side{}, fmt.Errorf("read the assigned %s: %w", where, err)
	}
	if cm.UID != ref.UID {
		return query.Side{}, fmt.Errorf("the assigned %s was deleted and created again", where)
	}
	content, err := payload.FromConfigMap(&cm)
	return query.SideOf("node/"+p.Config.Name, where, content), err
}

// mergeColumns returns the rows of fields that an assignment sets or that differ.
func mergeColumns(columns ...column) configView {
	v := configView{Columns: columns, Fields: []fieldRow{}}
	names := map[string]bool{}
	for _, c := range columns {
		for field := range c.fields {
			names[field] = true
		}
	}
	for _, field := range slices.Sorted(maps.Keys(names)) {
		row := fieldRow{Field: field}
		named := false
		first, differs := "", false
		for i, c := range columns {
			value, set := c.fields[field]
			row.Values = append(row.Values, value)
			named = named || set && (i == 1 || i == 2)
			if !set {
				continue
			}
			if first == "" {
				first = value
			}
			differs = differs || value != first
		}
		// A field that only one of active and assigned sets differs too.
		_, inActive := columns[1].fields[field]
		_, inAssigned := columns[2].fields[field]
		row.Differs = differs || columns[1].known && columns[2].known && inActive != inAssigned
		if !named && !row.Differs {
			v.Same++
			continue
		}
		v.Fields = append(v.Fields, row)
	}
	return v
}
