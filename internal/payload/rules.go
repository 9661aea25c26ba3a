// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evenkeel/evenkeel/internal/printable"
)

// rule computes a value of the grouped form from the machine's capacity.
// Amounts are in the base of the unit; 0 or nil: not given.
type rule struct {
	field, key string // of the upstream form; key is empty if the rule is for maxPods
	at         string // the path in the grouped form
	of         *unit
	tiers      []tier // one without upTo for a plain percentage
	plus       int64
	perPod     int64
	rates      []rate // of maxPods
	min, max   int64
	maxPercent *big.Rat
	words      string
}

// tier is a percentage of the capacity between the upTo of the tier before, and
// its own. 0: it is the rest.
type tier struct {
	upTo    int64
	percent *big.Rat
}

// rate is a number of pods for each part of a capacity.
type rate struct {
	pods *big.Rat
	of   *unit
	part int64 // in the base of the unit
	noun string
}

// unit is what a rule computes, and how it is written.
type unit struct {
	resource string
	noun     string // behind an amount
	example  string
	step     int64          // results are rounded down to a multiple of it, in the base
	base     resource.Scale // of amounts
	format   resource.Format
	limit    int64 // of an amount, in the base
	capacity func(Capacity) int64
}

var (
	cpus    = &unit{"cpu", " CPU", "500m", 1, resource.Milli, resource.DecimalSI, 1000 << 20, func(c Capacity) int64 { return c.CPU }}
	memory  = &unit{"memory", "", "100Mi", 1 << 20, 0, resource.BinarySI, 1 << 56, func(c Capacity) int64 { return c.Memory }}
	storage = &unit{"ephemeral-storage", "", "1Gi", 1 << 20, 0, resource.BinarySI, 1 << 56,
		func(c Capacity) int64 { return c.EphemeralStorage }}
	pids = &unit{"pid", " PIDs", "1000", 1, 0, resource.DecimalSI, math.MaxInt32, func(c Capacity) int64 { return c.PIDs }}
	pods = &unit{"pods", "", "110", 1, 0, resource.DecimalSI, math.MaxInt32, nil}
)

const fieldMaxPods = "maxPods"

// ruleUnits are the values that a rule may stand for, by field and key.
var ruleUnits = func() map[string]map[string]*unit {
	reserved := map[string]*unit{"cpu": cpus, "memory": memory, "ephemeral-storage": storage, "pid": pids}
	eviction := map[string]*unit{"memory.available": memory, "nodefs.available": storage, "pid.available": pids}
	return map[string]map[string]*unit{
		fieldMaxPods: {"": pods}, "kubeReserved": reserved, "systemReserved": reserved,
		"evictionHard": eviction, "evictionSoft": eviction, "evictionMinimumReclaim": eviction,
	}
}()

// maxTiers limits the tiers of a rule.
const maxTiers = 16

// rules decodes the rules in a field, and returns the field with their words in
// their place.
func (f *flattener) rules(field string, value any) any {
	units := ruleUnits[field]
	values, ok := value.(map[string]any)
	switch {
	case units == nil || !ok:
		return value
	case field == fieldMaxPods:
		return f.rule(&rule{field: field, of: pods}, values)
	}

	for _, key := range keys(values) {
		terms, ok := values[key].(map[string]any)
		if !ok {
			continue
		}

		r := &rule{field: field, key: key, of: units[key]}
		if r.of == nil {
			f.errs.add(ProblemRule, GroupedPath(r.path()), "must be a constant: only "+strings.Join(keys(units), ", ")+" may be rules")
			continue
		}

		values[key] = f.rule(r, terms)
	}

	return values
}

// path returns the upstream path of the value.
func (r *rule) path() string {
	if r.key == "" {
		return r.field
	}

	return JoinPath(r.field, r.key)
}

// rule decodes a rule, and returns its words.
func (f *flattener) rule(r *rule, terms map[string]any) string {
	r.at = GroupedPath(r.path())
	before := len(f.errs)
	known := []string{"max", "maxPercent", "min", "percent", "perPod", "plus", "tiers"}
	if r.of == pods {
		known = []string{"max", "min", "perCPU", "perGiB", "plus"}
	}

	for _, key := range keys(terms) {
		at, value := join(r.at, pathPart(key)), terms[key]
		if !slices.Contains(known, key) {
			f.errs.add(ProblemRule, at, "no such part of a rule; a rule for "+r.path()+" has "+strings.Join(known, ", "))
			continue
		}

		switch key {
		case "max":
			r.max = f.amount(r.of, at, value, r.of.step)
		case "min":
			r.min = f.amount(r.of, at, value, r.of.step)
		case "plus":
			r.plus = f.amount(r.of, at, value, r.of.step)
		case "perPod":
			r.perPod = f.amount(r.of, at, value, min(r.of.step, 1<<10))
		case "maxPercent":
			r.maxPercent = f.number(at, value, 100, false)
		case "percent":
			r.tiers = append(r.tiers, tier{percent: f.number(at, value, 100, false)})
		case "perCPU":
			r.rates = append(r.rates, rate{f.number(at, value, 1<<20, false), cpus, 1000, "CPU"})
		case "perGiB":
			r.rates = append(r.rates, rate{f.number(at, value, 1<<20, false), memory, 1 << 30, "GiB of memory"})
		case "tiers":
			if _, both := terms["percent"]; both {
				f.errs.add(ProblemRule, at, "percent and tiers exclude each other")
			}

			r.tiers = f.tiers(r.of, at, value)
		}
	}

	if len(f.errs) > before {
		return ""
	}
	if r.tiers == nil && r.plus == 0 && r.perPod == 0 && r.rates == nil {
		f.errs.add(ProblemRule, r.at, "computes nothing: a rule has at least one of percent, tiers, perPod, perCPU, perGiB and plus")
	}
	if r.max > 0 && r.min > r.max {
		f.errs.add(ProblemRule, join(r.at, "min"), fmt.Sprintf("%s is above max, which is %s", r.of.text(r.min), r.of.text(r.max)))
	}

	r.words = r.describe()
	f.found = append(f.found, r)

	return r.words
}

func (f *flattener) tiers(of *unit, at string, value any) []tier {
	list, ok := value.([]any)
	if !ok || len(list) == 0 || len(list) > maxTiers {
		f.errs.add(ProblemRule, at, fmt.Sprintf("must be a list of 1 to %d tiers", maxTiers))
		return nil
	}

	var tiers []tier
	for i, item := range list {
		at := fmt.Sprintf("%s[%d]", at, i)
		given, ok := item.(map[string]any)
		if !ok {
			f.errs.add(ProblemRule, at, "must be a mapping of upTo and percent, not "+describe(item))
			continue
		}

		t := tier{}
		for _, key := range keys(given) {
			switch in := join(at, pathPart(key)); key {
			case "upTo":
				t.upTo = f.amount(of, in, given[key], of.step)
			case "percent":
				t.percent = f.number(in, given[key], 100, true)
			default:
				f.errs.add(ProblemRule, in, "no such part of a tier, which has upTo and percent")
			}
		}

		_, bounded := given["upTo"]
		switch last := i == len(list)-1; {
		case given["percent"] == nil:
			f.errs.add(ProblemRule, join(at, "percent"), "is missing")
		case !bounded && !last:
			f.errs.add(ProblemRule, join(at, "upTo"), "is missing: only the last tier may be without it")
		case bounded && i > 0 && t.upTo <= tiers[len(tiers)-1].upTo:
			f.errs.add(ProblemRule, join(at, "upTo"), "must be above that of the tier before, because tiers must not overlap")
		}

		tiers = append(tiers, t)
	}

	return tiers
}

// number decodes a number above 0, or from 0 on with zero, up to most.
func (f *flattener) number(at string, value any, most int64, zero bool) *big.Rat {
	const maxDigits = 16
	text, _ := value.(json.Number)
	if len(text) <= maxDigits && !strings.ContainsAny(string(text), "eE") { // an exponent could need gigabytes
		n, ok := new(big.Rat).SetString(string(text))
		if ok && (n.Sign() > 0 || n.Sign() == 0 && zero) && n.Cmp(big.NewRat(most, 1)) <= 0 {
			return n
		}
	}

	f.errs.add(ProblemRule, at, fmt.Sprintf("must be a number above 0 and up to %d, of at most %d characters and without an exponent, not %s",
		most, maxDigits, describe(value)))

	return new(big.Rat)
}

// amount decodes a quantity of at least least, in the base of the unit.
func (f *flattener) amount(of *unit, at string, value any, least int64) int64 {
	const maxLength = 24
	text := fmt.Sprint(value) // that of a mapping or a list is no quantity
	if len(text) <= maxLength && (of.format == resource.BinarySI || !strings.HasSuffix(text, "i")) {
		q, err := ParseQuantity(text)
		if err == nil && q.Sign() > 0 && q.Cmp(of.quantity(of.limit)) <= 0 {
			if n := q.ScaledValue(of.base); n >= least && q.Cmp(of.quantity(n)) == 0 {
				return n
			}
		}
	}

	f.errs.add(ProblemRule, at, fmt.Sprintf("must be an amount of %s from %s to %s, such as %s, not %s", of.resource, of.text(least),
		of.text(of.limit), of.example, describe(value)))

	return least
}

// quantity returns an amount that is given in the base.
func (u *unit) quantity(n int64) resource.Quantity {
	q := resource.NewScaledQuantity(n, u.base)
	q.Format = u.format
	return *q
}

// text writes an amount as the kubelet reads it.
func (u *unit) text(n int64) string {
	q := u.quantity(n)
	return q.String()
}

// describe returns the rule in words.
func (r *rule) describe() string {
	var parts []string
	percent := func(p *big.Rat) string {
		return strings.TrimRight(strings.TrimRight(p.FloatString(maxDecimals), "0"), ".") + "%"
	}
	from := int64(0)
	for i, t := range r.tiers {
		part := "the rest"
		switch {
		case len(r.tiers) == 1 && t.upTo == 0:
			part = r.of.resource
		case i == 0:
			part = "the first " + r.of.text(t.upTo) + r.of.noun
		case t.upTo > 0:
			part = "the next " + r.of.text(t.upTo-from) + r.of.noun
		}

		from = t.upTo
		parts = append(parts, percent(t.percent)+" of "+part)
	}

	var per []string
	for _, rate := range r.rates {
		per = append(per, strings.TrimSuffix(percent(rate.pods), "%")+" per "+rate.noun)
	}
	if len(per) == 2 {
		per = []string{"the smaller of " + per[0] + " and " + per[1]}
	}

	parts = append(parts, per...)
	if r.perPod > 0 {
		parts = append(parts, r.of.text(r.perPod)+" per pod of maxPods")
	}

	if r.plus > 0 && len(parts) == 0 {
		parts = append(parts, r.of.text(r.plus))
	} else if r.plus > 0 {
		parts = append(parts, "plus "+r.of.text(r.plus))
	}

	if r.min > 0 {
		parts = append(parts, "at least "+r.of.text(r.min))
	}
	if r.max > 0 {
		parts = append(parts, "at most "+r.of.text(r.max))
	}
	if r.maxPercent != nil {
		parts = append(parts, "at most "+percent(r.maxPercent)+" of "+r.of.resource)
	}

	return printable.Truncate(strings.Join(parts, ", "), maxWords)
}

const (
	maxDecimals = 16
	maxWords    = 250 // bytes of the words of a rule
)

// apply returns the value of the rule on a machine, rounded down to a step of
// the unit. maxPods is needed for perPod only.
func (r *rule) apply(c Capacity, maxPods int64) (string, error) {
	refuse := func(problem Problem, format string, args ...any) (string, error) {
		return "", newError(problem, r.at+": "+format, args...)
	}
	const noCapacity = "depends on the machine, whose capacity of %s is not known"
	sum := new(big.Rat).SetInt64(r.plus)
	whole := int64(math.MaxInt32)
	if r.of == pods {
		n, unknown := r.perMachine(c)
		if unknown != "" {
			return refuse(ProblemCapacity, noCapacity, unknown)
		}

		sum.Add(sum, n)
	} else {
		if whole = r.of.capacity(c); whole <= 0 {
			return refuse(ProblemCapacity, noCapacity, r.of.resource)
		}

		from := int64(0)
		for _, t := range r.tiers {
			to := whole
			if t.upTo > 0 {
				to = min(to, t.upTo)
			}

			sum.Add(sum, percentOf(t.percent, to-from))
			from = to
		}

		sum.Add(sum, new(big.Rat).Mul(big.NewRat(r.perPod, 1), big.NewRat(maxPods, 1)))
	}

	atMost := func(n *big.Rat) {
		if sum.Cmp(n) > 0 {
			sum = n
		}
	}
	if least := big.NewRat(r.min, 1); sum.Cmp(least) < 0 {
		sum = least
	}
	if r.max > 0 {
		atMost(big.NewRat(r.max, 1))
	}
	if r.maxPercent != nil {
		atMost(percentOf(r.maxPercent, whole))
	}

	steps := new(big.Int).Quo(sum.Num(), new(big.Int).Mul(sum.Denom(), big.NewInt(r.of.step)))
	steps.Mul(steps, big.NewInt(r.of.step))
	switch {
	case steps.Sign() <= 0:
		return refuse(ProblemRule, "is 0 on this machine: use min or plus")
	case steps.Cmp(big.NewInt(whole)) > 0:
		return refuse(ProblemRule, "is above the machine's %s, which is %s: use max or maxPercent", r.of.resource, r.of.text(whole))
	}

	return r.of.text(steps.Int64()), nil
}

// perMachine returns the smallest of the rates on a machine, or the resource
// whose capacity is not known.
func (r *rule) perMachine(c Capacity) (least *big.Rat, unknown string) {
	for _, rate := range r.rates {
		has := rate.of.capacity(c)
		if has <= 0 {
			return nil, rate.of.resource
		}
		if n := new(big.Rat).Mul(rate.pods, big.NewRat(has, rate.part)); least == nil || n.Cmp(least) < 0 {
			least = n
		}
	}

	return cmp.Or(least, new(big.Rat)), ""
}

func percentOf(percent *big.Rat, n int64) *big.Rat {
	return new(big.Rat).Mul(percent, big.NewRat(n, 100))
}
