package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// book has pages of so many objects.
type book struct {
	client.Reader
	objects int
	asked   []string // for which page
}

func (b *book) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(options)
	b.asked = append(b.asked, fmt.Sprintf("%d from %q of %q", o.Limit, o.Continue, o.Namespace))
	from, _ := strconv.Atoi(o.Continue)
	out := list.(*metav1.PartialObjectMetadataList)
	for i := from; i < min(b.objects, from+int(o.Limit)); i++ {
		out.Items = append(out.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}})
	}
	if next := from + int(o.Limit); next < b.objects {
		out.Continue = fmt.Sprint(next)
	}
	return nil
}

func TestListsAreReadPageByPage(t *testing.T) {
	b, seen := &book{objects: 1200}, 0
	err := each(t.Context(), b, func() *metav1.PartialObjectMetadataList { return &metav1.PartialObjectMetadataList{} },
		func(l *metav1.PartialObjectMetadataList) []metav1.PartialObjectMetadata { return l.Items },
		[]client.ListOption{client.InNamespace("ns")}, func(o *metav1.PartialObjectMetadata) {
			if o.Name != fmt.Sprint(seen) {
				t.Fatalf("%s is the %dth", o.Name, seen)
			}
			seen++
		})
	if want := []string{`500 from "" of "ns"`, `500 from "500" of "ns"`, `500 from "1000" of "ns"`}; err != nil || seen != 1200 || !slices.Equal(b.asked, want) {
		t.Errorf("%d objects, asked %q, %v", seen, b.asked, err)
	}
}

func TestAnInstallationIsWhatTheManifestsHave(t *testing.T) {
	parts, err := Wanted()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, p := range parts {
		kinds[p.Of+" "+p.Want.GetKind()]++
	}
	for _, kind := range []string{
		"api CustomResourceDefinition", "api Namespace", "api ClusterRole", "api ClusterRoleBinding", "api Role", "api RoleBinding",
		"api ValidatingAdmissionPolicy", "api ValidatingAdmissionPolicyBinding", "controller ServiceAccount", "controller ClusterRole", "controller FlowSchema",
	} {
		if kinds[kind] == 0 {
			t.Errorf("no %s among %v", kind, kinds)
		}
	}
}
