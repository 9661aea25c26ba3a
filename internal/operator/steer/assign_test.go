// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func TestTheNameOfAContentIsThatOfItsFileAndOfNoRevision(t *testing.T) {
	const sum = "0123456789abcdef"
	for file, want := range map[string]string{
		"more-pods.yaml":                    "more-pods.0123456789",
		"/etc/kubelet/More Pods_v2.yml":     "more-pods-v2.0123456789",
		"workers":                           "workers.0123456789",
		"-":                                 "assigned.0123456789",
		".yaml":                             "assigned.0123456789",
		"größe.json":                        "gr-e.0123456789",
		strings.Repeat("a", 300) + "b.yaml": strings.Repeat("a", 50) + ".0123456789",
	} {
		got := ContentName(file, sum)
		assert.Equal(t, got, want, "the content of", file, "is named")
		problems := validation.IsDNS1123Subdomain(got)
		assert.That(t, len(problems) == 0, "%s cannot be a name: %v", got, problems)
		// A rollout's name is a DNS label, and that of its revisions as well.
		assert.That(t, len(validation.IsDNS1123Label(got)) != 0, "%s could be the name of a rollout's revision", got)
	}
}

func TestAnAssignmentDoesNotOverwriteAConcurrentChangeOfTheSpec(t *testing.T) {
	api := fakeapi.New(t)
	known := api.AddNodeConfig("a", nil, nil)
	assign := func(nc *v1alpha1.NodeConfig, c client.Client) error {
		_, err := Assign(t.Context(), c, nc, &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}, nil)
		return err
	}
	revoked := known.DeepCopy()
	revoked.Spec.Revoked = append(revoked.Spec.Revoked, "u")
	api.Write(revoked)
	for what, err := range map[string]error{"the dry run": assign(known, client.NewDryRunClient(api)), "the write": assign(known, api)} {
		assert.That(t, errors.Is(err, ErrChanged) && strings.Contains(err.Error(), "nothing was assigned; run the command again"),
			"%s: the error is %v", what, err)
	}

	api.Read(revoked)
	assert.That(t, revoked.Spec.ConfigSource == nil && len(revoked.Spec.Revoked) == 1, "the spec is %+v", revoked.Spec)
	known = revoked.DeepCopy()
	revoked.Status.Error = "a notice"
	api.Report(revoked)
	assert.OK(t, assign(known, api), "after a change of the status alone")
}
