// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evenkeel/evenkeel/internal/printable"
)

// rule computes a value of the grouped form from the machine's capacity. Amounts are in the base of the unit; 0 or nil: not given.
type rule struct {
	field, key string // of the upstream form; key is empty if the rule is for maxPods
	at         string // the path in the grouped form
	of         *unit
	tiers      []tier // one without upTo for a plain percentage
	plus       int64
	perPod     int64
	perCPU     *big.Rat // of maxPods
	perGiB     *big.Rat // of maxPods
	min, max   int64
	maxPercent *big.Rat
	words      string
}

// tier is a percentage of the capacity between the upTo of the tier before, and its own. 0: it is the rest.
type tier struct {
	upTo    int64
	percent *big.Rat
}

// unit is what a rule computes, and how it is written.
type unit struct {
	resource string
	step     int64 // results are rounded down to a multiple of it, in the base
	milli    bool  // the base is a thousandth
	format   resource.Format
	limit    int64 // of an amount, in the base
	capacity func(Capacity) int64
}

var (
	cpus    = &unit{"cpu", 1, true, resource.DecimalSI, 1000 << 20, func(c Capacity) int64 { return c.CPU }}
	memory  = &unit{"memory", 1 << 20, false, resource.BinarySI, 1 << 56, func(c Capacity) int64 { return c.Memory }}
	storage = &unit{"ephemeral-storage", 1 << 20, false, resource.BinarySI, 1 << 56, func(c Capacity) int64 { return c.EphemeralStorage }}
	pids    = &unit{"pid", 1, false, resource.DecimalSI, math.MaxInt32, func(c Capacity) int64 { return c.PIDs }}
	pods    = &unit{"pods", 1, false, resource.DecimalSI, math.MaxInt32, nil}
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

// rules decodes the rules in a field, and returns the field with their words in their place.
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
			r.perCPU = f.number(at, value, 1<<20, false)
		case "perGiB":
			r.perGiB = f.number(at, value, 1<<20, false)
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
	if r.tiers == nil && r.plus == 0 && r.perPod == 0 && r.perCPU == nil && r.perGiB == nil {
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
	text, ok := value.(string)
	if n, number := value.(json.Number); number {
		text, ok = string(n), true
	}
	q, err := resource.Quantity{}, error(nil)
	if ok = ok && len(text) <= maxLength; ok {
		q, err = ParseQuantity(text)
	}
	limit := of.limit
	if of.milli {
		limit /= 1000
	}
	fits := of.format == resource.BinarySI || !strings.HasSuffix(text, "i")
	if ok && err == nil && fits && q.Sign() > 0 && q.CmpInt64(limit) <= 0 {
		n := q.Value()
		exact := q.CmpInt64(n) == 0
		if of.milli {
			n = q.MilliValue()
			exact = q.Cmp(*resource.NewMilliQuantity(n, of.format)) == 0
		}
		if exact && n >= least {
			return n
		}
	}
	example := map[*unit]string{cpus: "500m", memory: "100Mi", storage: "1Gi", pids: "1000", pods: "110"}[of]
	f.errs.add(ProblemRule, at, fmt.Sprintf("must be an amount of %s from %s to %s, such as %s, not %s", of.resource, of.text(least),
		of.text(of.limit), example, describe(value)))
	return least
}

// text writes an amount as the kubelet reads it.
func (u *unit) text(n int64) string {
	if u.milli {
		return resource.NewMilliQuantity(n, u.format).String()
	}
	return resource.NewQuantity(n, u.format).String()
}

// describe returns the rule in words.
func (r *rule) describe() string {
	var sum, limits []string
	percent := func(p *big.Rat) string {
		return strings.TrimRight(strings.TrimRight(p.FloatString(maxDecimals), "0"), ".") + "%"
	}
	from, noun := int64(0), map[*unit]string{cpus: " CPU", pids: " PIDs"}[r.of]
	for i, t := range r.tiers {
		part := "the rest"
		switch {
		case len(r.tiers) == 1 && t.upTo == 0:
			part = r.of.resource
		case i == 0:
			part = "the first " + r.of.text(t.upTo) + noun
		case t.upTo > 0:
			part = "the next " + r.of.text(t.upTo-from) + noun
		}
		from = t.upTo
		sum = append(sum, percent(t.percent)+" of "+part)
	}
	var per []string
	for _, p := range []struct {
		n  *big.Rat
		of string
	}{{r.perCPU, "CPU"}, {r.perGiB, "GiB of memory"}} {
		if p.n != nil {
			per = append(per, strings.TrimSuffix(percent(p.n), "%")+" per "+p.of)
		}
	}
	if len(per) == 2 {
		per = []string{"the smaller of " + per[0] + " and " + per[1]}
	}
	sum = append(sum, per...)
	if r.perPod > 0 {
		sum = append(sum, r.of.text(r.perPod)+" per pod of maxPods")
	}
	if r.plus > 0 && len(sum) == 0 {
		sum = append(sum, r.of.text(r.plus))
	} else if r.plus > 0 {
		sum = append(sum, "plus "+r.of.text(r.plus))
	}
	if r.min > 0 {
		limits = append(limits, "at least "+r.of.text(r.min))
	}
	if r.max > 0 {
		limits = append(limits, "at most "+r.of.text(r.max))
	}
	if r.maxPercent != nil {
		limits = append(limits, "at most "+percent(r.maxPercent)+" of "+r.of.resource)
	}
	return printable.Truncate(strings.Join(append(sum, limits...), ", "), maxWords)
}

const (
	maxDecimals = 16
	maxWords    = 250 // bytes of the words of a rule
)

// apply returns the value of the rule on a machine, rounded down to a step of the unit. maxPods is needed for perPod only.
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

// perMachine returns the smaller of perCPU and perGiB for a machine, or the resource whose capacity is not known.
func (r *rule) perMachine(c Capacity) (n *big.Rat, unknown string) {
	for _, per := range []struct {
		n          *big.Rat
		of         *unit
		base, each int64
	}{{r.perCPU, cpus, c.CPU, 1000}, {r.perGiB, memory, c.Memory, 1 << 30}} {
		if per.n == nil {
			continue
		}
		if per.base <= 0 {
			return nil, per.of.resource
		}
		if m := new(big.Rat).Mul(per.n, big.NewRat(per.base, per.each)); n == nil || m.Cmp(n) < 0 {
			n = m
		}
	}
	if n == nil {
		n = new(big.Rat)
	}
	return n, ""
}

func percentOf(percent *big.Rat, n int64) *big.Rat {
	return new(big.Rat).Mul(percent, big.NewRat(n, 100))
}
