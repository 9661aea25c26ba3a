// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestWrongTextsAreNamedWithTheirValues(t *testing.T) {
	for fields, want := range map[string]string{
		`{"kubeReserved":{"memory":"512MB"}}`: `kubeReserved[memory]: "512MB": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
		`{"systemReserved":{"gpu":"1"}}`:      `systemReserved[gpu]: it must be one of cpu, memory, ephemeral-storage, pid`,
		`{"systemReserved":{"cpu":"-1"}}`:     `systemReserved[cpu]: "-1": it must be 0 or more`,
		`{"evictionHard":{"memory.available":"banana","memory.avail":"5%"}}`: `evictionHard[memory.avail]: it must be one of memory.available, allocatableMemory.available, nodefs.available, ` +
			`nodefs.inodesFree, imagefs.available, imagefs.inodesFree, containerfs.available, containerfs.inodesFree, pid.available; ` +
			`evictionHard[memory.available]: "banana": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
		`{"evictionHard":{"memory.available":"110%"}}`:                                             `evictionHard[memory.available]: "110%": it must be a percentage from 0% to 100%`,
		`{"evictionSoft":{"memory.available":"5%"}}`:                                               `evictionSoft[memory.available]: it has no evictionSoftGracePeriod`,
		`{"evictionSoft":{"memory.available":"5%"},"evictionSoftGracePeriod":{"pid.available":1}}`: `evictionSoftGracePeriod[pid.available]: "1": time: missing unit in duration "1"; evictionSoft[memory.available]: it has no evictionSoftGracePeriod`,
		`{"evictionSoftGracePeriod":{"memory.available":"-1s"}}`:                                   `evictionSoftGracePeriod[memory.available]: "-1s": it must not be negative`,
		`{"evictionMinimumReclaim":{"memory.available":"0%"}}`:                                     `evictionMinimumReclaim[memory.available]: "0%": it must be a percentage above 0%`,
		`{"containerLogMaxSize":"10MB"}`:                                                           `containerLogMaxSize: "10MB": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
		`{"kubeReserved":{"memory":"1Gi"},"evictionSoft":{"pid.available":"0%"},"maxPods":5}`:      ``,
	} {
		var e Effective
		assert.NoError(t, json.Unmarshal([]byte(fields), &e))
		assert.Equal(t, strings.Join(textErrors(e), "; "), want, fields)
	}
}

// What is judged away from a node is compared with a kubelet that builds itself
// on one.
func TestTextsAreJudgedAsAKubeletJudgesThem(t *testing.T) {
	const pairs = 12 // run with -count=30 for more
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	one := func(list ...string) string { return list[dice.IntN(len(list))] }
	values := []string{"1Gi", "100Mi", "0", "-1", "5%", "0%", "100%", "110%", "-1%", "x", "1MB", "1e3", "5.5%", "%", "", "1 Gi", "10m", "5%%"}
	h := dryRunner(t, kubeletWith(t, "containerRuntimeEndpoint: "+startContainerd(t)+"\n"))
	for range pairs {
		text := "containerLogMaxSize: " + fmt.Sprintf("%q", one("10Mi", "10MB", "1e6", "x", "10 Mi"))
		if field := one("evictionHard", "evictionSoft", "evictionMinimumReclaim", "evictionSoftGracePeriod", "size"); field != "size" {
			key := one("memory.available", "nodefs.available", "pid.available", "imagefs.inodesFree", "memory.free")
			text = fmt.Sprintf("%s: {%s: %q}", field, key, one(values...))
			if field == "evictionSoft" && dice.IntN(4) > 0 {
				text += fmt.Sprintf("\nevictionSoftGracePeriod: {%s: %q}", key, one("1m", "-1s", "0s", "1", "x"))
			}
		}

		v := h.judge(t.Context(), laidOver(text+"\n"), "")
		assert.Must(t, v.Outcome != CouldNotTell && v.Effective != nil, "%s: %s: %s", text, v.Outcome, v.Message)
		errs := textErrors(v.Effective)
		assert.That(t, (v.Outcome == Rejected) == (len(errs) > 0),
			"%s: the kubelet: %s: %s; evenkeel: %q", text, v.Outcome, v.Message, errs)
	}
}
