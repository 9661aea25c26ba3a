package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller"
	"github.com/evenkeel/evenkeel/internal/payload"
)

func (a *app) configCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use: "config", Short: "Look at configurations, judge, convert and generate them",
		Example: `  kubectl evenkeel config diff node/worker-17 rollout/workers
  kubectl evenkeel config diff old.yaml new.yaml
  kubectl evenkeel config validate kubelet.yaml --component-binary kubelet=/usr/bin/kubelet
  kubectl evenkeel config convert --form=grouped kubelet.yaml`,
	})
	cmd.AddCommand(a.configDiffCommand(), a.configValidateCommand(), a.configConvertCommand())
	cmd.AddCommand(a.configViewCommand(), a.configPrintCommand(), a.configUploadCommand())
	return cmd
}

// diffOptions is what the flags of config diff ask for.
type diffOptions struct {
	live   bool
	form   string
	output format
}

func (a *app) configDiffCommand() *cobra.Command {
	var o diffOptions
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two configurations, field by field",
		Long: `Compare two configurations, field by field. Each is one of

  node/NAME              what the node runs, as its NodeConfig says: the ConfigMap of its active revision
  rollout/NAME           the rollout's template, as it is now
  rollout/NAME@REVISION  a revision of it, by its number
  PATH                   a file with a KubeletConfiguration, upstream or grouped (./node/x if it is named like that)

With --live, what a node runs is asked of its kubelet, through the API server: the effective configuration, with
defaults, flags and the node's own files. That needs the right to get nodes/proxy.

A drop-in names only what it changes, and a configuration less than what is effective: of two of such different kinds,
only the fields are compared that the one names which names less. Values that may be secret are masked.

The exit code is 0 whether there are differences or not; scripts read -o json.`,
		Example: `  # What the next rollout changes on a node
  kubectl evenkeel config diff node/worker-17 rollout/workers

  # What changed between two revisions
  kubectl evenkeel config diff rollout/workers@3 rollout/workers@4

  # Whether a node's kubelet really has what the file says
  kubectl evenkeel config diff --live node/worker-17 kubelet.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%s needs two configurations, such as node/NAME kubelet.yaml: see its --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.configDiff(cmd.Context(), args[0], args[1], o) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.live, "live", false, "ask the kubelet of a node for what is effective there")
	f.StringVar(&o.form, "form", "flat", "names of fields: flat, as upstream has them, or grouped")
	formatFlag(cmd, &o.output, formatJSON, formatYAML)
	return cmd
}

// side is one of two configurations that are compared.
type side struct {
	Name   string `json:"name"`
	Source string `json:"source"` // where it comes from

	fields map[string]any
	trial  payload.Trial
	// extent is how much of a whole it names.
	extent extent
}

type extent int

const (
	partial   extent = iota // a drop-in
	whole                   // a configuration that replaces the local one; what it does not name has its default
	effective               // every field
)

func (e extent) String() string {
	return [...]string{"a drop-in", "a configuration as it is written", "what is effective"}[e]
}

// comparison is what config diff prints.
type comparison struct {
	A           side         `json:"a"`
	B           side         `json:"b"`
	Differences []difference `json:"differences"`
	// NotCompared counts fields that only the one names which names more.
	NotCompared int `json:"notCompared,omitempty"`
}

func (a *app) configDiff(ctx context.Context, nameA, nameB string, o diffOptions) error {
	switch {
	case o.form != "flat" && o.form != "grouped":
		return fmt.Errorf("unknown form %q: use flat or grouped", o.form)
	case o.live && !strings.HasPrefix(nameA, "node/") && !strings.HasPrefix(nameB, "node/"):
		return errors.New("--live is for nodes: neither is node/NAME")
	}
	var d comparison
	var err error
	if d.A, err = a.readSide(ctx, nameA, o.live); err != nil {
		return err
	}
	if d.B, err = a.readSide(ctx, nameB, o.live); err != nil {
		return err
	}
	d.compare(o.form)
	if o.output != "" {
		return encode(a.Out, o.output, d)
	}
	fmt.Fprintf(a.Out, "--- %s\n+++ %s\n", oneLine(d.A.Name+" ("+d.A.Source+")"), oneLine(d.B.Name+" ("+d.B.Source+")"))
	for _, c := range d.Differences {
		fmt.Fprintln(a.Out, oneLine(c.String()))
	}
	if len(d.Differences) == 0 {
		fmt.Fprintln(a.Out, "no differences")
	}
	if d.NotCompared > 0 {
		fmt.Fprintf(a.Out, "not compared: %d fields that are only in one, since %s is set beside %s\n", d.NotCompared, max(d.A.extent, d.B.extent), min(d.A.extent, d.B.extent))
	}
	return nil
}

// compare fills in the differences.
func (d *comparison) compare(form string) {
	d.Differences = []difference{}
	for _, c := range changes(d.A.fields, d.B.fields) {
		if d.A.extent < d.B.extent && c.A == unset || d.B.extent < d.A.extent && c.B == unset {
			d.NotCompared++
			continue
		}
		if form == "grouped" {
			c.Field = payload.GroupedPath(c.Field)
		}
		d.Differences = append(d.Differences, c)
	}
	if d.A.extent != effective && d.B.extent != effective {
		d.Differences = append(d.Differences, trialChanges(d.A.trial, d.B.trial)...)
	}
}

// readSide reads the configuration that an argument names.
func (a *app) readSide(ctx context.Context, name string, live bool) (side, error) {
	s := side{Name: name}
	kind, rest, _ := strings.Cut(name, "/")
	var p payload.Payload
	var err error
	switch {
	case (kind == "node" || kind == "rollout") && rest == "" && name != kind:
		return s, fmt.Errorf("%q lacks a name: %s/NAME", name, kind)
	case kind == "node" && live:
		return a.liveSide(ctx, s, rest)
	case kind == "node":
		p, s.Source, err = a.nodePayload(ctx, rest)
	case kind == "rollout":
		p, s.Source, err = a.rolloutPayload(ctx, rest)
	default:
		s.Source = "file"
		p, err = filePayload(name)
	}
	s.fields, s.trial, s.extent = p.Fields, p.Trial, whole
	if p.Key == payload.KeyKubeletDropin {
		s.extent = partial
	}
	return s, err
}

func filePayload(path string) (payload.Payload, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return payload.Payload{}, fmt.Errorf("%w (node/NAME and rollout/NAME[@REVISION] name what is in the cluster)", err)
	}
	p, err := payload.Decode(payload.KeyKubelet, data)
	if refused := (*payload.Error)(nil); errors.As(err, &refused) {
		return p, fmt.Errorf("file %s is no KubeletConfiguration: %s", path, refused.Words)
	}
	return p, err
}

// nodePayload returns what a node runs, as its NodeConfig says, and where that comes from.
func (a *app) nodePayload(ctx context.Context, name string) (payload.Payload, string, error) {
	var p payload.Payload
	c, err := a.client()
	if err != nil {
		return p, "", err
	}
	found, err := getPair(ctx, c, name)
	if err != nil {
		return p, "", err
	}
	nc := found.config
	if nc == nil || !hasReported(nc) {
		return p, "", fmt.Errorf("node %s has no agent yet that could say what it runs: use --live", name)
	}
	active := nc.Status.Active
	if active == nil {
		return p, "", fmt.Errorf("node %s runs its local configuration, which only the node knows: use --live", name)
	}
	source := fmt.Sprintf("ConfigMap %s/%s", active.Namespace, active.Name)
	var cm corev1.ConfigMap
	err = c.Get(ctx, client.ObjectKey{Namespace: active.Namespace, Name: active.Name}, &cm)
	switch {
	case apierrors.IsNotFound(err) || err == nil && cm.UID != active.UID:
		return p, "", fmt.Errorf("node %s runs %s (UID: %s), which is gone; it keeps a copy of its own: use --live", name, source, active.UID)
	case err != nil:
		return p, "", fmt.Errorf("get what node %s runs, %s: %w", name, source, err)
	}
	if p, err = payload.FromConfigMap(&cm); err != nil {
		return p, "", fmt.Errorf("node %s runs %s, which was edited since: use --live: %w", name, source, err)
	}
	if p.SHA256 != active.SHA256 {
		return p, "", fmt.Errorf("node %s runs %s as it was before somebody edited it: use --live", name, source)
	}
	return p, source, nil
}

// rolloutPayload returns what a rollout's template holds, or one of its revisions: NAME or NAME@REVISION.
func (a *app) rolloutPayload(ctx context.Context, arg string) (payload.Payload, string, error) {
	var p payload.Payload
	name, number, numbered := strings.Cut(arg, "@")
	wanted, err := strconv.ParseInt(number, 10, 64)
	if numbered && (err != nil || wanted < 1) {
		return p, "", fmt.Errorf("rollout/%s: %q is no number of a revision; see `kubectl evenkeel rollout history %s`", arg, number, name)
	}
	c, err := a.client()
	if err != nil {
		return p, "", err
	}
	r, err := get(ctx, c, name)
	if err != nil {
		return p, "", err
	}
	var content controller.Content
	source := "spec.template"
	if !numbered {
		if content, err = contentIn(ctx, c, r.Spec.Template); err != nil {
			return p, "", fmt.Errorf("rollout %s: %w", name, err)
		}
	} else {
		all, err := pasts(ctx, c, r)
		if err != nil {
			return p, "", err
		}
		if content, err = contentAt(r, all, wanted); err != nil {
			return p, "", err
		}
		source = fmt.Sprintf("ConfigMap %s/%s", v1alpha1.SystemNamespace, controller.RevisionName(name, content.SHA256))
	}
	p, err = payloadOf(content)
	return p, source, err
}

// liveSide asks a node's kubelet what is effective.
func (a *app) liveSide(ctx context.Context, s side, node string) (side, error) {
	config, err := a.config.ToRESTConfig()
	if err != nil {
		return s, err
	}
	api, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return s, err
	}
	text, err := api.RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("configz").DoRaw(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return s, fmt.Errorf("there is no node %q; see `kubectl evenkeel nodes`: %w", node, err)
	case apierrors.IsForbidden(err):
		return s, fmt.Errorf("--live needs the right to get nodes/proxy of node %s; without --live, a NodeConfig is enough: %w", node, err)
	case err != nil:
		return s, fmt.Errorf("the API server does not get an answer from the kubelet of node %s (leave --live out to see what its NodeConfig says): %w", node, err)
	}
	var answer struct {
		Kubelet map[string]any `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Kubelet == nil {
		return s, fmt.Errorf("the kubelet of node %s does not answer /configz with a configuration: %.100q", node, text)
	}
	s.Source, s.fields, s.extent = "its kubelet's /configz", answer.Kubelet, effective
	return s, nil
}
