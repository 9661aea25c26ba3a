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

	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// nodeDetail is what the page shows of the node that somebody looks at: what `kubectl evenkeel node` says.
type nodeDetail struct {
	Name  string             `json:"name"`
	Lines []describe.Line    `json:"lines"`
	Next  []string           `json:"next"`
	Trial *describe.RowTrial `json:"trial,omitempty"`
	OK    describe.RowStatus `json:"configOK"`
	Note  string             `json:"note,omitempty"`
}

func (s *Server) node(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	view, err := query.ViewNode(r.Context(), remembering{s.world}, r.PathValue("name"))
	if err != nil {
		s.fail(w, http.StatusNotFound, describe.WithAdvice(err, s.o.Version))
		return
	}
	n := describe.NodeOf(view, now)
	d := nodeDetail{Name: n.Name, Lines: n.Lines(now), Trial: n.Trial, OK: n.ConfigOK}
	for _, words := range n.Next {
		d.Next = append(d.Next, printable.Line(words))
	}
	if n.AgentVersion != "" && n.AgentVersion != s.o.Version {
		d.Note = printable.Line(fmt.Sprintf("the agent is of another version (%s) than this program (%s)", n.AgentVersion, s.o.Version))
	}
	reply(w, d)
}

// configView sets the configurations of a node beside each other, field by field.
type configView struct {
	Columns []column   `json:"columns"`
	Fields  []fieldRow `json:"fields"`
	Same    int        `json:"same"` // fields that are left out, since all say the same
}

// column is one configuration: the node's own, the one it runs, the one it is assigned, and what its kubelet says.
type column struct {
	Title  string `json:"title"`
	Source string `json:"source,omitempty"`
	Not    string `json:"not,omitempty"` // why it is not known

	fields map[string]string // shown values by path; nil: not known
	known  bool
	whole  bool // a field that is not in it has the kubelet's default
}

// fieldRow is one field. A value is JSON, "masked", or empty: not set there, or not known.
type fieldRow struct {
	Field   string   `json:"field"`
	Values  []string `json:"values"`
	Differs bool     `json:"differs"`
}

// nodeConfig answers with the configurations of a node. With ?live its kubelet is asked what is effective.
func (s *Server) nodeConfig(w http.ResponseWriter, r *http.Request) {
	ctx, name := r.Context(), r.PathValue("name")
	p, err := query.GetPair(ctx, s.api, name)
	if err != nil {
		s.fail(w, http.StatusNotFound, describe.WithAdvice(err, s.o.Version))
		return
	}
	reply(w, s.compare(ctx, p, name, r.URL.Query().Has("live")))
}

func (s *Server) compare(ctx context.Context, p query.Pair, name string, live bool) configView {
	local := column{Title: "Local", Source: "the node's own files and flags"}
	active := column{Title: "Active", Source: "what the node runs"}
	assigned := column{Title: "Assigned", Source: "what it shall run"}
	effective := column{Title: "Effective", Source: "what its kubelet says"}

	runsLocal := p.Config != nil && query.HasReported(p.Config) && p.Config.Status.Active == nil
	if runsLocal {
		active.Source = "the node's own files and flags"
		active.Not = "the node runs its local configuration, which only the node knows: what is effective is all of it"
	} else {
		active.take(query.NodeSide(ctx, s.api, name))
	}
	assigned.take(assignedSide(ctx, s.api, p))
	if !live {
		effective.Not = "its kubelet was not asked"
	} else {
		effective.take(query.LiveSide(ctx, s.o.Config, name))
		effective.whole = true
	}
	switch {
	case runsLocal && effective.known:
		local.fields, local.known, local.whole = effective.fields, true, true
		local.Source = "what its kubelet says, as it runs nothing else"
	case runsLocal:
		local.Not = "only the node knows it: ask its kubelet"
	case active.known && !active.whole && effective.known:
		// A drop-in is laid over the local configuration: what it does not name is as it is locally.
		local.known, local.Source = true, "what its kubelet says, but for what the drop-in covers"
		local.fields = maps.Clone(effective.fields)
		for field := range active.fields {
			delete(local.fields, field)
		}
		local.Not = "what the drop-in covers only the node knows: evenkeel-agent status --effective there"
	default:
		local.Not = "only the node knows it: evenkeel-agent status --effective there"
	}
	return besideEachOther(local, active, assigned, effective)
}

// take fills a column.
func (c *column) take(s query.Side, err error) {
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

// assignedSide is what a node's NodeConfig assigns.
func assignedSide(ctx context.Context, c client.Reader, p query.Pair) (query.Side, error) {
	if p.Config == nil {
		return query.Side{}, fmt.Errorf("it has no NodeConfig")
	}
	source := p.Config.Spec.ConfigSource
	if source == nil || source.ConfigMapRef == nil {
		return query.Side{}, fmt.Errorf("nothing is assigned: the node runs its local configuration")
	}
	ref := source.ConfigMapRef
	where := fmt.Sprintf("ConfigMap %s/%s", ref.Namespace, ref.Name)
	var cm corev1.ConfigMap
	if err := c.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &cm); err != nil {
		return query.Side{}, fmt.Errorf("get what is assigned, %s: %w", where, err)
	}
	if cm.UID != ref.UID {
		return query.Side{}, fmt.Errorf("%s is another object (UID: %s) than the one that is assigned (UID: %s)", where, cm.UID, ref.UID)
	}
	content, err := payload.FromConfigMap(&cm)
	return query.SideOf("node/"+p.Config.Name, where, content), err
}

// besideEachOther sets columns beside each other: the fields that an assignment names, and those that are not the same.
func besideEachOther(columns ...column) configView {
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
		// Active and assigned are both written by people: what only one of them names differs as well.
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
