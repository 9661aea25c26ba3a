// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/evenkeel/evenkeel/internal/component"
)

// Validation is the verdict of the target version's own binary on a
// configuration.
type Validation string

// The verdicts.
const (
	Accepted     Validation = "Accepted"
	Rejected     Validation = "Rejected"
	CouldNotTell Validation = "CouldNotTell"
	Unvalidated  Validation = "Unvalidated" // no binary was given
)

// Manual says whether a configuration must be migrated by hand before the
// upgrade.
type Manual string

// The values of Manual.
const (
	ManualYes     Manual = "Yes"
	ManualNo      Manual = "No"
	ManualUnknown Manual = "Unknown"
)

// Plan is what an upgrade does with all component configurations (proposal:
// "kubeadm upgrade plan changes").
type Plan struct {
	Target     string   `json:"targetVersion,omitempty"`  // v1.37.0; "" if the user named none and no binary was given
	Current    string   `json:"currentVersion,omitempty"` // of the ClusterConfiguration
	Components []Row    `json:"components"`
	Notes      []string `json:"notes,omitempty"`

	Changes              []Change `json:"-"` // one for each of Components, in their order
	ClusterConfiguration *Write   `json:"-"` // nil if it stays
	RunningProxy         string   `json:"-"` // image of the DaemonSet kube-proxy; "" if it does not exist
}

// Row is what an upgrade does with one component's configuration, for output.
type Row struct {
	Component        string     `json:"component"`
	Tier             Tier       `json:"tier"`
	ConfigMap        string     `json:"configMap"`
	Origin           Origin     `json:"origin,omitempty"`           // empty if the cluster has no configuration
	Action           Action     `json:"action,omitempty"`           // empty if never touched
	CurrentVersion   string     `json:"currentVersion,omitempty"`   // apiVersion of the cluster's configuration
	NextVersion      string     `json:"nextVersion,omitempty"`      // apiVersion after the upgrade
	PreferredVersion string     `json:"preferredVersion,omitempty"` // apiVersion that the target prefers; empty if unknown
	Validation       Validation `json:"validation,omitempty"`       // of the configuration after the upgrade
	ValidatedBy      string     `json:"validatedBy,omitempty"`      // kubelet v1.37.0
	ManualUpgrade    Manual     `json:"manualUpgrade,omitempty"`    // empty if not managed
	Why              string     `json:"why"`                        // reason for the action
	Objections       []string   `json:"objections,omitempty"`       // messages of the component
	Warnings         []string   `json:"warnings,omitempty"`
	Corefile         string     `json:"corefile,omitempty"` // only for CoreDNS
}

// NeedsManualUpgrade reports whether a configuration must be migrated by hand
// before the upgrade.
func (p *Plan) NeedsManualUpgrade() bool {
	return slices.ContainsFunc(p.Components, func(r Row) bool { return r.ManualUpgrade == ManualYes })
}

// Writes returns the plan's writes in order: first the ClusterConfiguration,
// from which the others are derived.
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

// MakePlan decides what to store (see Decide) and lets the target version's
// binaries, by component name, validate it. The configuration of a component
// without a binary stays unvalidated, and its row says so. An empty target
// means the version of the binaries. A rejected configuration is not an error.
func MakePlan(ctx context.Context, existing *Cluster, input *Input, target string, binaries map[string]component.Component,
	o Options) (*Plan, error) {
	changes, cluster, err := Decide(existing, input, o)
	if err != nil {
		return nil, err
	}

	input = cmp.Or(input, &Input{})
	p := &Plan{
		Changes: changes, ClusterConfiguration: cluster, RunningProxy: existing.ProxyImage, Current: existing.Configuration.version(),
		Notes: input.notes(existing, cluster != nil),
	}
	if o.Init && target == "" {
		target = cmp.Or(p.Current, input.Cluster.version())
	}

	versions, versionErrs := map[string]string{}, map[string]error{}
	for _, c := range Components() {
		binary := binaries[c.Name]
		if binary == nil {
			continue
		}
		if versions[c.Name], versionErrs[c.Name] = binary.Version(ctx); versionErrs[c.Name] != nil {
			continue
		}
		if target, err = matchTarget(target, c.Name, versions[c.Name]); err != nil {
			return nil, err
		}
	}

	p.Target = target
	if cluster != nil {
		if err := checkReadable(input, target); err != nil {
			return nil, err
		}
	}

	if note := skewNote(p.Current, p.Target); note != "" {
		p.Notes = append(p.Notes, note)
	}

	for i := range changes {
		name := changes[i].Component.Name
		p.Components = append(p.Components, changes[i].settle(ctx, binaries[name], versions[name], versionErrs[name]))
	}

	if existing.ConfigMaps[CoreDNSConfigMap] != nil {
		p.Components = append(p.Components, Row{
			Component: "coredns", Tier: AddOn, ConfigMap: CoreDNSConfigMap, CurrentVersion: CorefileKey,
			Why:      "not managed: the Corefile is never changed or validated (-o yaml shows it)",
			Corefile: existing.ConfigMaps[CoreDNSConfigMap].Data[CorefileKey],
		})
	}

	if err := ctx.Err(); err != nil { // an interrupted validation is not a verdict
		return nil, err
	}

	return p, nil
}

// checkReadable returns an error if the target's kubeadm cannot read the
// ClusterConfiguration to be stored: kubeadm reads v1beta3 up to 1.36.
func checkReadable(input *Input, target string) error {
	v, err := version.ParseGeneric(target)
	if err != nil || input.Cluster.APIVersion != kubeadmV1beta3 || v.LessThan(version.MajorMinor(1, 37)) {
		return nil // without a target there is nothing to check
	}

	return fmt.Errorf("kubeadm %d.%d cannot read %s, the version of the ClusterConfiguration in %s: convert it to %s with \"kubeadm config "+
		"migrate\" of 1.36",
		v.Major(), v.Minor(), kubeadmV1beta3, input.File, kubeadmV1beta4)
}

// notes returns the notes on what a file does to the cluster's
// ClusterConfiguration.
func (g *Input) notes(existing *Cluster, stored bool) []string {
	notes := g.Notes
	if !stored || existing.Configuration == nil {
		return notes
	}

	notes = append(notes, fmt.Sprintf("the ClusterConfiguration in %s replaces the cluster's", g.File))
	if is, new := existing.Configuration.version(), g.Cluster.version(); is != "" && new != "" && is != new {
		notes = append(notes, fmt.Sprintf("its kubernetesVersion stays %s, not %s as in %s: kubeadm changes it when it upgrades the control "+
			"plane", is, new, g.File))
	}

	return notes
}

// skewNote returns a note if kubeadm does not support the upgrade from one
// version to the other, else "".
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
		return fmt.Sprintf("%s is older than the cluster's version %s", to, from)
	case target.Major() != current.Major() || target.Minor() > current.Minor()+1:
		return fmt.Sprintf("%s is more than one minor version ahead of the cluster's version %s: kubeadm upgrades one minor version at a time",
			to, from)
	}

	return ""
}

// matchTarget returns the target, or the binary's version if target is empty.
// It fails if their minor versions differ.
func matchTarget(target, name, of string) (string, error) {
	if target == "" {
		return of, nil
	}

	desired, err := version.ParseGeneric(target)
	if err != nil {
		return "", fmt.Errorf("target version: %w", err)
	}

	is, err := version.ParseGeneric(of)
	if err != nil {
		return "", fmt.Errorf("version of the %s: %w", name, err)
	}
	if is.Major() != desired.Major() || is.Minor() != desired.Minor() {
		return "", fmt.Errorf("the given %s is %s, but the target is %s: pass a binary of the target version", name, of, target)
	}

	return target, nil
}

// settle keeps a text that says the same as the generated one, unless the
// target's binary rejects it. It returns the row of the change, as newRow does.
func (c *Change) settle(ctx context.Context, binary component.Component, of string, versionErr error) Row {
	if c.same && c.Write != nil {
		kept := *c // a change without a meaning only raises questions
		kept.Next, kept.Write = c.Current, nil
		kept.Why += ", and a new one would say the same"
		if row := newRow(ctx, kept, binary, of, versionErr); row.Validation != Rejected {
			*c = kept
			return row
		}
	}

	return newRow(ctx, *c, binary, of, versionErr)
}

// newRow returns the row of a change, validated by the target's binary.
// versionErr says why the binary's version is unknown.
func newRow(ctx context.Context, change Change, binary component.Component, of string, versionErr error) Row {
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
	case binary == nil:
		row.Validation = Unvalidated
		row.Warnings = append(row.Warnings, "unvalidated: "+validationHint(c.Name))
	case versionErr != nil:
		row.Validation = CouldNotTell
		row.Warnings = append(row.Warnings, "could not tell: "+versionErr.Error())
	default:
		row.ValidatedBy = c.Name + " " + of
		row.validate(ctx, change.Next, binary)
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

// validate sets the fields that the target's binary decides.
func (r *Row) validate(ctx context.Context, document []byte, binary component.Component) {
	var err error
	if r.PreferredVersion, err = binary.PreferredVersion(ctx); err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the preferred version is unknown: %v", err))
	}

	verdict, objections := component.ValidationErrors(ctx, binary, document)
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

// validationHint says how to get a component's configuration validated.
func validationHint(name string) string {
	how := fmt.Sprintf("pass the target version's binary with --component-binary %s=PATH", name)
	if name == "kube-proxy" {
		how += ", or its image with --component-image kube-proxy=REF"
	}

	return how
}

// NotValidated returns the rows with a binary that could not validate them.
func (p *Plan) NotValidated() []Row {
	return slices.DeleteFunc(slices.Clone(p.Components), func(r Row) bool { return r.Validation != CouldNotTell })
}

// Preferred returns the preferred version, or words that say why it is unknown.
func (r *Row) Preferred() string {
	switch {
	case r.PreferredVersion != "" || r.Validation == "":
		return r.PreferredVersion
	case r.Validation == Unvalidated:
		return "unknown, unvalidated"
	}

	return "unknown"
}

// Short returns an apiVersion without the component's group.
func (r *Row) Short(apiVersion string) string {
	for _, c := range Components() {
		if c.Name == r.Component {
			return strings.TrimPrefix(apiVersion, c.Group+"/")
		}
	}

	return apiVersion
}

// ParseTarget returns a version as v1.37.0.
func ParseTarget(s string) (string, error) {
	v, err := version.ParseSemantic(s)
	if err != nil {
		return "", fmt.Errorf("%q is not a version of Kubernetes: use one such as v1.37.2", s)
	}

	return "v" + v.String(), nil
}
