package component

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// candidate is one configuration while Check judges it.
type candidate struct {
	h        *Harness
	id       Identity
	data     []byte
	initFile string

	unusable string // why stage 2 cannot be used now
	local    bool   // the local configuration passed stage 2 during this check
}

// refused judges a candidate that did not pass stage 1 or that only passed with lenient decoding, which the kubelet
// itself lets pass with a warning.
func (c *candidate) refused(ctx context.Context, a answer) Verdict {
	words := a.words
	if a.lenient != "" && words == "" {
		words = a.lenient
	} else if a.lenient != "" {
		words = clip(words+"; "+a.lenient, maxWords)
	}
	v := Verdict{Stage: 1, Words: words}
	if a.outcome == CouldNotTell {
		return v
	}
	if local := c.h.runLocal(ctx, 1, c.initFile); local.outcome != Accepted {
		v.Words = clip(fmt.Sprintf("%s (but the local configuration does not pass the dry run either: %s)", words, local.words), maxWords)
		return v
	}
	v.Outcome = Rejected
	return v
}

// runStage2 runs the candidate as far as it can go without being a kubelet, if this binary was seen to stop there with
// the local configuration.
func (c *candidate) runStage2(ctx context.Context) answer {
	h := c.h
	h.mu.Lock()
	proven, banned := h.stage2 == c.id, h.banned == c.id
	h.mu.Unlock()
	if banned {
		c.unusable = "this kubelet does not stop where it should"
		return answer{}
	}
	if !proven {
		local := h.runLocal(ctx, 2, c.initFile)
		c.remember(local)
		if local.outcome != Accepted {
			c.unusable = "the local configuration does not pass it: " + local.words
			return answer{}
		}
		c.local = true
	}
	a := h.run(ctx, dryRun{stage: 2, data: c.data, nodeFlags: true})
	if a.strayed {
		c.remember(a)
		c.unusable = a.words
	}
	return a
}

// remember keeps what a run at stage 2 showed of the binary.
func (c *candidate) remember(a answer) {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	switch {
	case a.strayed:
		c.h.banned, c.h.stage2 = c.id, Identity{}
	case a.outcome == Accepted:
		c.h.stage2 = c.id
	}
}

// judgeStage2 lays the result of stage 2 over the acceptance of stage 1.
func (c *candidate) judgeStage2(ctx context.Context, v *Verdict, a answer) {
	switch {
	case c.unusable != "":
		v.Words = clip("stage 2 of the dry run was not used: "+c.unusable, maxWords)
		return
	case a.outcome == Accepted:
		v.Stage = 2
		return
	case a.outcome == CouldNotTell:
		v.Outcome, v.Stage, v.Words = CouldNotTell, 2, a.words
		return
	}
	// Something refuses it. The candidate's fault, or the node's? The local configuration tells, now.
	if !c.local || a.noRuntime {
		local := c.h.runLocal(ctx, 2, c.initFile)
		switch {
		case local.outcome == Accepted:
		case local.noRuntime:
			v.Words = clip("stage 2 of the dry run was not used: "+local.words, maxWords)
			return
		default:
			v.Outcome, v.Stage = CouldNotTell, 2
			v.Words = clip(fmt.Sprintf("%s (but the local configuration does not pass the dry run either: %s)", a.words, local.words), maxWords)
			return
		}
	}
	v.Outcome, v.Stage, v.Words = Rejected, 2, a.words
}

// setsConfig tells whether the command line has a flag that may override a field of the configuration.
func (k *Kubelet) setsConfig() bool {
	return slices.ContainsFunc(k.flags, func(f flag) bool { return !notConfig[f.name] })
}

// addOverridden compares what the kubelet makes of the candidate with and without the node's flags.
func (c *candidate) addOverridden(v *Verdict, flagged bool, bare answer) {
	var fields map[string]any
	if err := yaml.Unmarshal(c.data, &fields); err != nil {
		v.Warnings = append(v.Warnings, "which fields are overridden by flags is unknown: "+clip(err.Error(), maxWords))
		return
	}
	leaves(fields, nil, func(path []segment, value any) {
		if c.overridden(path, value, v.Effective, flagged, bare.effective) {
			v.Overridden = append(v.Overridden, joinPath(path))
		}
	})
	slices.Sort(v.Overridden)
	if flagged && (bare.effective == nil || v.Effective == nil) {
		why := bare.words
		if why == "" {
			why = "the kubelet did not print its configuration"
		}
		v.Warnings = append(v.Warnings, clip("which fields are overridden by flags is unknown: "+why, maxWords))
	}
}

func (c *candidate) overridden(path []segment, value any, with Effective, flagged bool, bare Effective) bool {
	switch strings.ToLower(joinPath(path)) {
	case "apiversion", "kind":
		return false
	case "logging.verbosity":
		// Every dry run has -v=5, so that no dump can tell.
		own, given := last(c.h.k.flags, "v")
		return given && own != fmt.Sprint(value)
	case "seccompdefault":
		// The kubelet takes either; the flag does not show in the configuration.
		own, given := last(c.h.k.flags, "seccomp-default")
		return given && own != "false" && value == false
	}
	if !flagged || with == nil || bare == nil {
		return false
	}
	is, _ := with.field(path)
	would, known := bare.field(path)
	return known && !reflect.DeepEqual(is, would)
}

// effective decodes the dump of a dry run and puts right what only the dry run made of it: the throw-away certificate
// directory, and -v=5. It returns nil if there is no dump.
func (h *Harness) effective(dump []byte, dir string, want dryRun) Effective {
	if len(dump) == 0 {
		return nil
	}
	e, err := decodeEffective(dump)
	if err != nil {
		h.log.Warn("could not read the configuration that the kubelet printed", "error", err)
		return nil
	}
	for _, name := range []string{"TLSCertFile", "TLSPrivateKeyFile"} {
		if rest, ok := strings.CutPrefix(e.String(name), filepath.Join(dir, "pki")+"/"); ok {
			e.set(filepath.Join(h.k.CertDir, rest), name)
		}
	}
	if logging, ok := e["Logging"].(map[string]any); ok {
		for name := range logging {
			if strings.EqualFold(name, "verbosity") {
				e.set(h.verbosity(want), "Logging", name)
			}
		}
	}
	return e
}

// verbosity is what logging.verbosity would be without the -v=5 of the dry run; nil, as far as drop-ins may say.
func (h *Harness) verbosity(want dryRun) any {
	if v, given := last(h.k.flags, "v"); given && want.nodeFlags {
		if _, err := strconv.ParseInt(v, 10, 32); err == nil {
			return json.Number(v)
		}
		return nil
	}
	data, file := want.data, want.file
	if data == nil && file == "" && want.nodeFlags {
		if h.k.ConfigDir != "" {
			return nil
		}
		file = h.k.Config
	}
	if data == nil && file != "" {
		data, _ = os.ReadFile(file) // the kubelet just read it; if it is gone now, nothing is known
	}
	var fields struct {
		Logging struct {
			Verbosity int64 `json:"verbosity"`
		} `json:"logging"`
	}
	if err := yaml.Unmarshal(data, &fields); err != nil {
		return nil
	}
	return json.Number(strconv.FormatInt(fields.Logging.Verbosity, 10))
}
