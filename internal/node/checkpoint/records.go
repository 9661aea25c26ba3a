package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/trial"
)

const (
	group      = "evenkeel.dev/"
	apiVersion = group + "v1alpha1"
)

const (
	maxStartups = 11
	maxPromoted = 10
	maxBad      = 50
	// maxFile is larger than any record or ConfigMap, even with every character escaped. A larger file is not read.
	maxFile = 16 << 20
)

// record is a file that contains a part of the state.
type record struct {
	name      string
	kind      string
	body      string // the required key: a missing value is not the same as an empty one
	versioned bool   // kept separately for each version of the component
	encode    func(trial.State, header) any
	decode    func([]byte, record, *trial.State) error
}

var badConfigs = record{"bad-configs", "BadConfigs", "items", true, encodeBad, decodeBad}

// records are the files of the state, in the order in which they are written: after a crash between any two, the next
// start decides the same again. What must never run comes first; then current, before everything about it; a verdict
// before the trial that it ends; last-known-good after the promotion that it is based on, and after a current that is
// local.
var records = []record{
	{"revoked", "RevokedConfigs", "items", false, encodeRevoked, decodeRevoked},
	{"current", "CurrentConfig", "source", false, encodeCurrent, decodeCurrent},
	badConfigs,
	{"promoted", "PromotedConfigs", "items", true, encodePromoted, decodePromoted},
	{"last-known-good", "LastKnownGoodConfig", "source", false, encodeLastKnownGood, decodeLastKnownGood},
	{"startups", "Startups", "items", true, encodeStartups, decodeStartups},
	{"trial", "TrialRecord", "trial", true, encodeTrial, decodeTrial},
}

// versionRecord contains the version of the component that saved last. It is not part of the state, and is written
// after it.
var versionRecord = record{name: "component-version", kind: "ComponentVersion", body: "version"}

type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

type configRecord struct {
	header
	Source     *source     `json:"source"` // null: local, explicitly
	Revision   string      `json:"revision,omitempty"`
	Checkpoint string      `json:"fileSHA256,omitempty"`
	Payload    string      `json:"payloadSHA256,omitempty"`
	Dropin     bool        `json:"dropin,omitempty"`
	AdoptedAt  *time.Time  `json:"adoptedAt,omitempty"`
	Trial      *trialTerms `json:"trial,omitempty"` // requested by the configuration
	AssignedBy string      `json:"assignedBy,omitempty"`
}

// trialTerms are the terms of a trial, with the names of the payload's fields.
type trialTerms struct {
	Duration     string `json:"configTrialDuration,omitempty"`
	Threshold    *int   `json:"crashLoopThreshold,omitempty"`
	AllowPodLoss bool   `json:"allowPodLoss,omitempty"`
}

type source struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	UID       string            `json:"uid"`
	SHA256    string            `json:"sha256,omitempty"`
	Rollout   *trial.RolloutRef `json:"rolloutRef,omitempty"`
}

type listRecord[T any] struct {
	header
	Items []T `json:"items"`
}

type badRecord struct {
	header
	Items map[string]trial.BadConfig `json:"items"`
}

type trialRecord struct {
	header
	Trial *trialBody `json:"trial"` // null: no trial is in progress
}

type trialBody struct {
	Revision     string         `json:"revision"`
	Terms        *trialTerms    `json:"terms,omitempty"`
	Local        string         `json:"localDigest,omitempty"`
	StartTime    time.Time      `json:"startTime"`
	Healthy      string         `json:"observedHealthy"` // a duration such as 1m3s
	Unhealthy    string         `json:"observedUnhealthy,omitempty"`
	NotReady     string         `json:"observedNotReady,omitempty"`
	Lived        string         `json:"longestLife,omitempty"`
	BootID       string         `json:"bootID"`
	Clean        bool           `json:"cleanShutdown"`
	Baseline     trial.Baseline `json:"baseline"`
	Fallback     trial.Fallback `json:"fallback,omitempty"`
	APILostEarly bool           `json:"apiLostEarly,omitempty"`
	APIProbed    bool           `json:"apiProbed,omitempty"`
}

type componentVersion struct {
	header
	Version string `json:"version"`
}

func encodeRevoked(s trial.State, h header) any {
	return listRecord[string]{h, append([]string{}, s.Revoked...)}
}

func decodeRevoked(data []byte, r record, s *trial.State) error {
	v, err := parse[listRecord[string]](data, r)
	if err == nil && slices.Contains(v.Items, "") {
		err = errors.New("an empty UID")
	}
	s.Revoked = orNil(v.Items)
	return err
}

func encodeCurrent(s trial.State, h header) any { return encodeConfig(s.Current, h) }

func encodeLastKnownGood(s trial.State, h header) any { return encodeConfig(s.LastKnownGood, h) }

func decodeCurrent(data []byte, r record, s *trial.State) (err error) {
	s.Current, err = decodeConfig(data, r)
	return err
}

func decodeLastKnownGood(data []byte, r record, s *trial.State) (err error) {
	s.LastKnownGood, err = decodeConfig(data, r)
	return err
}

func encodeConfig(from trial.AdoptedConfig, h header) any {
	v := configRecord{header: h}
	if !from.Since.IsZero() {
		since := from.Since.UTC()
		v.AdoptedAt = &since
	}
	if from.IsLocal() {
		return v
	}
	v.Revision, v.Checkpoint, v.Payload, v.Dropin, v.AssignedBy = from.Revision, from.Checkpoint, from.Payload, from.Dropin, from.AssignedBy
	v.Source = &source{Namespace: from.Namespace, Name: from.Name, UID: from.UID, SHA256: from.SHA256}
	if from.Rollout != (trial.RolloutRef{}) {
		rollout := from.Rollout
		rollout.AssignedAt = rollout.AssignedAt.UTC()
		v.Source.Rollout = &rollout
	}
	if a := from.RequestedTerms; a != (trial.RequestedTerms{}) {
		v.Trial = &trialTerms{AllowPodLoss: a.AllowPodLoss}
		if a.Duration > 0 {
			v.Trial.Duration = a.Duration.String()
		}
		if threshold := a.Starts - 1; threshold >= 0 {
			v.Trial.Threshold = &threshold
		}
	}
	return v
}

func decodeConfig(data []byte, r record) (trial.AdoptedConfig, error) {
	v, err := parse[configRecord](data, r)
	if err != nil {
		return trial.AdoptedConfig{}, err
	}
	var to trial.AdoptedConfig
	if v.AdoptedAt != nil {
		to.Since = *v.AdoptedAt
	}
	if v.Source == nil {
		if v.Revision != "" || v.Checkpoint != "" || v.Payload != "" {
			return trial.AdoptedConfig{}, errors.New("the source is null, but a revision or digest is given")
		}
		return to, nil
	}
	to.Config = trial.Config{
		Revision: v.Revision, Checkpoint: v.Checkpoint, Payload: v.Payload, Dropin: v.Dropin,
		Namespace: v.Source.Namespace, Name: v.Source.Name, UID: v.Source.UID, SHA256: v.Source.SHA256,
		AssignedBy: v.AssignedBy,
	}
	if v.Source.Rollout != nil {
		to.Rollout = *v.Source.Rollout
	}
	duration, threshold, err := v.Trial.read()
	if err != nil {
		return trial.AdoptedConfig{}, err
	}
	if v.Trial != nil {
		to.RequestedTerms = trial.RequestedTerms{Duration: duration, Starts: threshold + 1, AllowPodLoss: v.Trial.AllowPodLoss}
	}
	if err := errors.Join(checkRevision(v.Revision), checkDigest(v.Checkpoint), checkDigest(v.Payload)); err != nil {
		return trial.AdoptedConfig{}, err
	}
	return to, nil
}

// read returns the terms: 0 and -1 for those that are not set.
func (t *trialTerms) read() (duration time.Duration, threshold int, err error) {
	threshold = -1
	if t == nil {
		return
	}
	if t.Duration != "" {
		err = readDuration("configTrialDuration", t.Duration, &duration)
	}
	if t.Threshold != nil {
		threshold = max(*t.Threshold, 0)
	}
	return duration, threshold, err
}

func encodeBad(s trial.State, h header) any {
	v := badRecord{h, map[string]trial.BadConfig{}}
	// The newest come first. An entry that forbids current or last-known-good is always kept: without it that
	// configuration would run again.
	keep := func(b trial.BadConfig) {
		if _, ok := v.Items[b.Revision]; !ok && len(v.Items) < maxBad {
			b.Time = b.Time.UTC()
			v.Items[b.Revision] = b
		}
	}
	for _, c := range []trial.Config{s.Current.Config, s.LastKnownGood.Config} {
		if b, bad := s.BadEntry(c); bad {
			keep(b)
		}
	}
	for _, b := range s.Bad {
		keep(b)
	}
	return v
}

func decodeBad(data []byte, r record, s *trial.State) error {
	v, err := parse[badRecord](data, r)
	if err != nil {
		return err
	}
	s.Bad = nil
	for revision, b := range v.Items {
		if err := errors.Join(checkRevision(revision), checkDigest(b.Payload)); err != nil {
			return err
		}
		b.Revision = revision
		s.Bad = append(s.Bad, b)
	}
	slices.SortFunc(s.Bad, func(a, b trial.BadConfig) int {
		return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Revision, b.Revision))
	})
	return nil
}

func encodePromoted(s trial.State, h header) any {
	items := append([]trial.Promotion{}, s.Promoted[:min(len(s.Promoted), maxPromoted)]...)
	for i := range items {
		items[i].Time = items[i].Time.UTC()
	}
	return listRecord[trial.Promotion]{h, items}
}

func decodePromoted(data []byte, r record, s *trial.State) error {
	v, err := parse[listRecord[trial.Promotion]](data, r)
	for _, p := range v.Items {
		err = errors.Join(err, checkRevision(p.Revision), checkDigest(p.Payload))
	}
	s.Promoted = orNil(v.Items)
	return err
}

func encodeStartups(s trial.State, h header) any {
	items := []time.Time{}
	for _, t := range s.Startups[max(0, len(s.Startups)-maxStartups):] {
		items = append(items, t.UTC())
	}
	return listRecord[time.Time]{h, items}
}

func decodeStartups(data []byte, r record, s *trial.State) error {
	v, err := parse[listRecord[time.Time]](data, r)
	s.Startups = orNil(v.Items)
	return err
}

func encodeTrial(s trial.State, h header) any {
	if s.Trial == nil {
		return trialRecord{header: h}
	}
	t := s.Trial
	return trialRecord{h, &trialBody{
		Revision: t.Revision, Terms: &trialTerms{t.Terms.Duration.String(), &t.Terms.Threshold, t.Terms.AllowPodLoss}, Local: t.Local, StartTime: t.StartTime.UTC(),
		Healthy: t.Healthy.String(), Unhealthy: orEmpty(t.Unhealthy), NotReady: orEmpty(t.NotReady), Lived: orEmpty(t.LongestUptime), BootID: t.BootID, Clean: t.Clean,
		Baseline: t.Baseline, Fallback: t.Fallback, APILostEarly: t.APILostEarly, APIProbed: t.APIProbed,
	}}
}

func decodeTrial(data []byte, r record, s *trial.State) error {
	s.Trial = nil
	v, err := parse[trialRecord](data, r)
	if err != nil || v.Trial == nil {
		return err
	}
	t := v.Trial
	if t.Terms == nil {
		return errors.New("the trial has no terms")
	}
	duration, threshold, err := t.Terms.read()
	if err != nil {
		return err
	}
	s.Trial = &trial.Trial{
		Revision: t.Revision, Local: t.Local, StartTime: t.StartTime, BootID: t.BootID, Clean: t.Clean,
		Baseline: t.Baseline, Fallback: t.Fallback, APILostEarly: t.APILostEarly, APIProbed: t.APIProbed,
		Terms: trial.Terms{Duration: duration, Threshold: max(threshold, 0), AllowPodLoss: t.Terms.AllowPodLoss},
	}
	return errors.Join(
		checkRevision(t.Revision),
		readDuration("observedHealthy", t.Healthy, &s.Trial.Healthy),
		readDuration("observedUnhealthy", cmp.Or(t.Unhealthy, "0s"), &s.Trial.Unhealthy),
		readDuration("observedNotReady", cmp.Or(t.NotReady, "0s"), &s.Trial.NotReady),
		readDuration("longestLife", cmp.Or(t.Lived, "0s"), &s.Trial.LongestUptime),
	)
}

func readDuration(key, text string, into *time.Duration) (err error) {
	if *into, err = time.ParseDuration(text); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// orEmpty converts a duration that most records omit.
func orEmpty(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// orNil returns nil for an empty list.
func orNil[T any](items []T) []T {
	if len(items) == 0 {
		return nil
	}
	return items
}

// marshal returns a record as indented JSON.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

// parse is strict: it accepts one JSON value of this version and kind, with each key once and the required key
// present. It ignores unknown fields: a later agent may have added them, and a downgrade must not lose `current`
// because of that. There is no checksum, because the proposal lets operators repair these files by hand.
func parse[T any](data []byte, r record) (T, error) {
	var v, none T
	var h header
	if err := json.Unmarshal(data, &h); err != nil { // of all data: nothing may follow the value
		return none, err
	}
	switch {
	case h.APIVersion != apiVersion && strings.HasPrefix(h.APIVersion, group):
		return none, fmt.Errorf("it was written by a future version: apiVersion %q, supported is %q", h.APIVersion, apiVersion)
	case h.APIVersion != apiVersion:
		return none, fmt.Errorf("apiVersion %q is not %q", h.APIVersion, apiVersion)
	case h.Kind != r.kind:
		return none, fmt.Errorf("kind %q is not %q", h.Kind, r.kind)
	}
	keys, err := checkKeys(json.NewDecoder(bytes.NewReader(data)))
	if err != nil {
		return none, err
	}
	if !slices.Contains(keys, r.body) {
		return none, fmt.Errorf("it has no %q", r.body)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return none, err
	}
	return v, nil
}

// checkKeys reads one JSON value and returns the keys if it is an object. A duplicate key is an error: encoding/json
// would use the last one.
func checkKeys(d *json.Decoder) (keys []string, err error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	open, _ := token.(json.Delim)
	if open != '{' && open != '[' {
		return nil, nil
	}
	for d.More() {
		if open == '{' {
			token, err := d.Token()
			if err != nil {
				return nil, err
			}
			key, _ := token.(string)
			if slices.Contains(keys, key) {
				return nil, fmt.Errorf("the key %q is duplicated", key)
			}
			keys = append(keys, key)
		}
		if _, err := checkKeys(d); err != nil {
			return nil, err
		}
	}
	_, err = d.Token() // the closing delimiter
	return keys, err
}

var digest = regexp.MustCompile(`^([0-9a-f]{64})?$`)

func checkDigest(s string) error {
	if !digest.MatchString(s) {
		return fmt.Errorf("%q is not a sha256", s)
	}
	return nil
}
