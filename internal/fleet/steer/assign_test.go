package steer

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
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
		if got != want {
			t.Errorf("the content of %s is named %s, want %s", file, got, want)
		}
		if problems := validation.IsDNS1123Subdomain(got); len(problems) > 0 {
			t.Errorf("%s cannot be a name: %v", got, problems)
		}
		// A rollout's name is a DNS label, and that of its revisions as well.
		if len(validation.IsDNS1123Label(got)) == 0 {
			t.Errorf("%s could be the name of a rollout's revision", got)
		}
	}
}
