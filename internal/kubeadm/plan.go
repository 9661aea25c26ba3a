package kubeadm

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/evenkeel/evenkeel/internal/component"
)

// Validation is what the target version's own binary says of a configuration.
type Validation string

const (
	Accepted     Validation = "Accepted"
	Rejected     Validation = "Rejected"
	CouldNotTell Validation = "CouldNotTell"
	Unvalidated  Validation = "Unvalidated" // nobody was asked
)

// Manual tells whether somebody has to migrate a configuration by hand before the upgrade.
type Manual string

const (
	ManualYes     Manual = "Yes"
	ManualNo      Manual = "No"
	ManualUnknown Manual = "Unknown"
)

// Plan is what an upgrade makes of all component configurations (proposal: "kubeadm upgrade plan changes").
type Plan struct {
	Target     string   `json:"targetVersion,omitempty"`  // v1.37.0; "" if none was named, and no binary told one
	Current    string   `json:"currentVersion,omitempty"` // of the ClusterConfiguration
	Components []Row    `json:"components"`
	Notes      []string `json:"notes,omitempty"`

	Changes              []Change `json:"-"` // of Components, in their order
	ClusterConfiguration *Write   `json:"-"` // nil: it stays
	RunningProxy         string   `json:"-"` // image of the kube-proxies that run; "" if there are none
}

// Row is what an upgrade makes of one component's configuration.
type Row struct {
	Component        string     `json:"component"`
	Tier             Tier       `json:"tier"`
	ConfigMap        string     `json:"configMap"`
	Origin           Origin     `json:"origin,omitempty"`           // of what the cluster has; empty if it has none
	Action           Action     `json:"action,omitempty"`           // empty: not touched
	CurrentVersion   string     `json:"currentVersion,omitempty"`   // apiVersion of what the cluster has
	NextVersion      string     `json:"nextVersion,omitempty"`      // apiVersion of what there will be
	PreferredVersion string     `json:"preferredVersion,omitempty"` // apiVersion that the target prefers; empty: unknown
	Validation       Validation `json:"validation,omitempty"`       // of what there will be
	ValidatedBy      string     `json:"validatedBy,omitempty"`      // kubelet v1.37.0
	ManualUpgrade    Manual     `json:"manualUpgrade,omitempty"`    // empty: not managed
	Why              string     `json:"why"`                        // of the action
	Objections       []string   `json:"objections,omitempty"`       // in the component's own words
	Warnings         []string   `json:"warnings,omitempty"`
	Corefile         string     `json:"corefile,omitempty"` // of CoreDNS alone
}

// NeedsManualUpgrade tells whether something has to be migrated by hand before the upgrade.
func (p *Plan) NeedsManualUpgrade() bool {
	for _, row := range p.Components {
		if row.ManualUpgrade == ManualYes {
			return true
		}
	}
	return false
}

// Writes returns what the plan stores, in the order in which it is stored: first what the rest is derived from.
func (p *Plan) Writes() []Write {
	var writes []Write
	if p.ClusterConfiguration != nil {
		writes = append(writes, *p.ClusterConfiguration)
	}
	for _, change := range p.Changes {
		if change.Write != nil {
			writes = append(writes, *change.Write)
		}
	}
	return writes
}

// MakePlan decides (see Decide) and has the target version's binaries judge what there will be. judges are by the
// component's name; one that is missing leaves its configuration unvalidated, and its row says so. target may be empty: it
// is what the judges are, then. The error names what is missing or contradicts; a configuration that is rejected is none.
func MakePlan(ctx context.Context, have *Cluster, given *Input, target string, judges map[string]component.Component, o Options) (*Plan, error) {
	changes, cluster, err := Decide(have, given, o)
	if err != nil {
		return nil, err
	}
	p := &Plan{Changes: changes, ClusterConfiguration: cluster, RunningProxy: have.ProxyImage}
	if have.Configuration != nil {
		p.Current = have.Configuration.KubernetesVersion
	}
	if given != nil {
		p.Notes = given.notes(have, cluster != nil)
	}
	if o.Init && target == "" {
		target = p.Current
		if target == "" && given != nil && given.Cluster != nil {
			target = given.Cluster.KubernetesVersion
		}
	}
	versions, mute := map[string]string{}, map[string]error{}
	for _, c := range Components() {
		judge := judges[c.Name]
		if judge == nil {
			continue
		}
		if versions[c.Name], mute[c.Name] = judge.Version(ctx); mute[c.Name] != nil {
			continue
		}
		if target, err = matchTarget(target, c.Name, versions[c.Name]); err != nil {
			return nil, err
		}
	}
	p.Target = target
	if cluster != nil {
		if err := checkReadable(given, target); err != nil {
			return nil, err
		}
	}
	if note := skewNote(p.Current, p.Target); note != "" {
		p.Notes = append(p.Notes, note)
	}
	for _, change := range changes {
		name := change.Component.Name
		p.Components = append(p.Components, newRow(ctx, change, judges[name], versions[name], mute[name]))
	}
	if have.ConfigMaps[CoreDNSConfigMap] != nil {
		p.Components = append(p.Components, Row{
			Component: "coredns", Tier: AddOn, ConfigMap: CoreDNSConfigMap, CurrentVersion: CorefileKey,
			Why: "not managed: its Corefile is never touched or judged (-o yaml shows it)", Corefile: have.ConfigMaps[CoreDNSConfigMap].Data[CorefileKey],
		})
	}
	if err := ctx.Err(); err != nil { // what was not judged for that is no finding
		return nil, err
	}
	return p, nil
}

// checkReadable returns an error if the target's kubeadm could not read the ClusterConfiguration that is to be stored: it reads
// v1beta3 up to 1.36.
func checkReadable(given *Input, target string) error {
	v, err := version.ParseGeneric(target)
	if err != nil || given.Cluster.APIVersion != kubeadmV1beta3 || v.LessThan(version.MajorMinor(1, 37)) {
		return nil // without a target nobody knows
	}
	return fmt.Errorf("kubeadm %d.%d cannot read %s, and %s has a ClusterConfiguration of it: \"kubeadm config migrate\" of 1.36 makes %s of it",
		v.Major(), v.Minor(), kubeadmV1beta3, given.File, kubeadmV1beta4)
}

// notes say what of a file counts for less than one might think.
func (g *Input) notes(have *Cluster, stored bool) []string {
	notes := g.Notes
	if !stored || have.Configuration == nil {
		return notes
	}
	notes = append(notes, fmt.Sprintf("the ClusterConfiguration in %s takes the place of the cluster's", g.File))
	if is, new := have.Configuration.KubernetesVersion, g.Cluster.KubernetesVersion; is != "" && new != "" && is != new {
		notes = append(notes, fmt.Sprintf("its kubernetesVersion stays the cluster's, %s: that of %s (%s) is for kubeadm to write, when it upgrades the control plane", is, g.File, new))
	}
	return notes
}

// skewNote says what is odd about the way from one version to another; "" if nothing is.
func skewNote(from, to string) string {
	current, err := version.ParseGeneric(from)
	if err != nil {
		return ""
	}
	target, err := version.ParseGeneric(to)
	switch {
	case err != nil:
		return ""
	case target.LessThan(current):
		return fmt.Sprintf("%s is older than %s, which the cluster has", to, from)
	case target.Major() != current.Major() || target.Minor() > current.Minor()+1:
		return fmt.Sprintf("%s is more than one minor version ahead of %s, which the cluster has: kubeadm goes one at a time", to, from)
	}
	return ""
}

// matchTarget returns the target that a judge's version and what is known of the target so far amount to: they must be of the
// same minor version.
func matchTarget(target, name, of string) (string, error) {
	if target == "" {
		return of, nil
	}
	wanted, err := version.ParseGeneric(target)
	if err != nil {
		return "", fmt.Errorf("target version: %w", err)
	}
	is, err := version.ParseGeneric(of)
	if err != nil {
		return "", fmt.Errorf("version of the %s: %w", name, err)
	}
	if is.Major() != wanted.Major() || is.Minor() != wanted.Minor() {
		return "", fmt.Errorf("the %s that was given is %s, and the target is %s: give the target version's own binary", name, of, target)
	}
	return target, nil
}

// newRow is a change with what the target's binary says of it; mute says why that cannot even tell its version.
func newRow(ctx context.Context, change Change, judge component.Component, of string, mute error) Row {
	c := change.Component
	row := Row{
		Component: c.Name, Tier: c.Tier, ConfigMap: c.ConfigMap, Origin: change.Origin, Action: change.Action,
		CurrentVersion: apiVersionOf(change.Current), NextVersion: apiVersionOf(change.Next), ManualUpgrade: ManualNo, Why: change.Why,
		Warnings: change.Warnings,
	}
	if change.Action == Skip {
		return row
	}
	users := change.Action == Keep || change.Action == Replace
	switch {
	case judge == nil:
		row.Validation = Unvalidated
		row.Warnings = append(row.Warnings, "unvalidated: "+validationHint(c.Name))
	case mute != nil:
		row.Validation = CouldNotTell
		row.Warnings = append(row.Warnings, "could not tell: "+mute.Error())
	default:
		row.ValidatedBy = c.Name + " " + of
		row.validate(ctx, change.Next, judge)
	}
	switch {
	case row.Validation == Rejected:
		row.ManualUpgrade = ManualYes
	case change.Action == Keep && change.Unreadable != "" && row.Validation != Accepted:
		row.ManualUpgrade, row.Objections, row.ValidatedBy = ManualYes, []string{change.Unreadable}, ""
	case row.Validation == CouldNotTell, row.Validation == Unvalidated && users:
		row.ManualUpgrade = ManualUnknown
	}
	return row
}

// validate has the target's binary judge what there will be.
func (r *Row) validate(ctx context.Context, document []byte, judge component.Component) {
	var err error
	if r.PreferredVersion, err = judge.PreferredVersion(ctx); err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the preferred version is not known: %v", err))
	}
	verdict, objections := component.ValidationErrors(ctx, judge, document)
	r.Warnings = append(r.Warnings, verdict.Warnings...)
	switch verdict.Outcome {
	case component.Accepted:
		r.Validation = Accepted
	case component.Rejected:
		r.Validation, r.Objections = Rejected, objections
	default:
		r.Validation = CouldNotTell
		r.Warnings = append(r.Warnings, "could not tell: "+verdict.Message)
	}
}

// validationHint says how a component's configuration could be validated.
func validationHint(name string) string {
	how := fmt.Sprintf("give the target version's binary, --component-binary %s=PATH", name)
	if name == "kube-proxy" {
		how += ", or its image, --component-image kube-proxy=REF"
	}
	return how
}

// NotValidated returns the rows whose validation was asked for and could not be had.
func (p *Plan) NotValidated() []Row {
	var rows []Row
	for _, row := range p.Components {
		if row.Validation == CouldNotTell {
			rows = append(rows, row)
		}
	}
	return rows
}

// Preferred returns the preferred version in words: also that it is not known.
func (r *Row) Preferred() string {
	switch {
	case r.PreferredVersion != "" || r.Validation == "":
		return r.PreferredVersion
	case r.Validation == Unvalidated:
		return "unknown, unvalidated"
	}
	return "unknown"
}

// Short returns an apiVersion without the group, if that is the component's.
func (r *Row) Short(apiVersion string) string {
	for _, c := range Components() {
		if c.Name == r.Component {
			return strings.TrimPrefix(apiVersion, c.Group+"/")
		}
	}
	return apiVersion
}

// ParseTarget returns the version that a user named, as v1.37.0. The error says what it should look like.
func ParseTarget(s string) (string, error) {
	v, err := version.ParseSemantic(s)
	if err != nil {
		return "", fmt.Errorf("%q is no version of Kubernetes such as v1.37.1", s)
	}
	return "v" + v.String(), nil
}
