// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// deny returns the API server's answer to a request without permission.
func deny(user, verb, group, resource, namespace, name string) *apierrors.StatusError {
	where := "at the cluster scope"
	if namespace != "" {
		where = fmt.Sprintf("in the namespace %q", namespace)
	}

	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Details: &metav1.StatusDetails{Name: name},
		Message: fmt.Sprintf("%s %q is forbidden: User %q cannot %s resource %q in API group %q %s", resource, name, user, verb, resource, group, where),
	}}
}

// The requests of the command line, with the role that its manual names for
// them.
func TestAForbiddenRequestNamesTheRole(t *testing.T) {
	const ours, system = "evenkeel.dev", "evenkeel-system"
	for _, tt := range []struct{ verbs, group, resource, namespace, name, role string }{
		{"get list watch", ours, "nodeconfigs", "", "a", "evenkeel-view"},
		{"patch", ours, "nodeconfigs", "", "a", "evenkeel-operator"},
		{"create update patch delete", ours, "nodeconfigrollouts", "", "a", "evenkeel-operator"},
		{"get", ours, "nodeconfigpreflights", "", "a", "evenkeel-view"},
		{"create delete", ours, "nodeconfigpreflights", "", "a", "evenkeel-preflight"},
		{"get list watch", "", "nodes", "", "a", "evenkeel-operator"},
		{"patch", "", "nodes", "", "a", "evenkeel-installer"},
		{"get list create", "", "configmaps", system, "a", "evenkeel-operator"},
		{"get", "coordination.k8s.io", "leases", system, "evenkeel-controller", "evenkeel-operator"},
		{"delete", "apps", "deployments", system, "evenkeel-controller", "evenkeel-installer"},
		{"list", "", "events", "default", "", "evenkeel-view"},
		{"list", "", "pods", "evenkeel-install", "", "evenkeel-installer"},
		{"get", "", "pods/log", "evenkeel-install", "a", "evenkeel-installer"},
		// No role includes these.
		{"get", "", "nodes/proxy", "", "a", ""},
		{"get", "", "configmaps", "default", "a", ""},
		{"get", "coordination.k8s.io", "leases", system, "another", ""},
		{"delete", ours, "nodeconfigs", "", "a", ""},
		{"update", ours, "nodeconfigs/status", "", "a", ""},
		{"delete", "apiextensions.k8s.io", "customresourcedefinitions", "", "nodeconfigs.evenkeel.dev", ""},
	} {
		for verb := range strings.FieldsSeq(tt.verbs) {
			denied := deny("ann", verb, tt.group, tt.resource, tt.namespace, tt.name)
			if slices.Contains([]string{"list", "watch", "create"}, verb) { // of all objects
				denied.ErrStatus.Details.Name = ""
			}

			words, ok := strings.CutPrefix(WithAdvice(denied, "").Error(), denied.Error()+"\n")
			assert.Must(t, ok, "the API server's words are missing: %q", words)
			begin, grant := "evenkeel's role "+tt.role+" includes this permission", "role="+tt.role+" --user=ann"
			if tt.role == "" {
				begin, grant = "no role of evenkeel includes this permission", "--verb="+verb+" --resource="
			}

			assert.That(t, strings.HasPrefix(words, begin) && strings.Contains(words, grant),
				"%s %s %s: the advice is %q, want %q and %q", verb, tt.resource, tt.namespace, words, begin, grant)
		}
	}
}

func TestTheAdviceBindsEveryPartOfARole(t *testing.T) {
	for _, tt := range []struct {
		name   string
		denied *apierrors.StatusError
		want   string
	}{
		{"a write", deny("ann", "patch", "evenkeel.dev", "nodeconfigrollouts", "", "a"), `evenkeel's role evenkeel-operator includes this permission; an administrator can grant it:
kubectl create clusterrolebinding evenkeel-operator-ann --clusterrole=evenkeel-operator --user=ann
kubectl create rolebinding evenkeel-operator-ann -n evenkeel-system --role=evenkeel-operator --user=ann
kubectl create rolebinding evenkeel-operator-ann -n default --role=evenkeel-operator --user=ann`},
		{"a read that only a role with writes includes", deny("ann", "list", "", "nodes", "", ""), `evenkeel's role evenkeel-operator includes this permission; an administrator can grant it:
kubectl create clusterrolebinding evenkeel-operator-ann --clusterrole=evenkeel-operator --user=ann
kubectl create rolebinding evenkeel-operator-ann -n evenkeel-system --role=evenkeel-operator --user=ann
kubectl create rolebinding evenkeel-operator-ann -n default --role=evenkeel-operator --user=ann
this role also allows changes; to grant only this permission:
kubectl create clusterrole evenkeel-list-nodes --verb=list --resource=nodes
kubectl create clusterrolebinding evenkeel-list-nodes-ann --clusterrole=evenkeel-list-nodes --user=ann`},
		{"a right of no role", deny("ann", "get", "", "nodes/proxy", "", "a"), `no role of evenkeel includes this permission, because it allows much more on every node; an administrator can grant it alone:
kubectl create clusterrole evenkeel-get-nodes-proxy --verb=get --resource=nodes/proxy
kubectl create clusterrolebinding evenkeel-get-nodes-proxy-ann --clusterrole=evenkeel-get-nodes-proxy --user=ann`},
		{"a right of no role, in a namespace", deny("ann", "get", "", "configmaps", "default", "a"), `no role of evenkeel includes this permission; an administrator can grant it alone:
kubectl create role evenkeel-get-configmaps -n default --verb=get --resource=configmaps
kubectl create rolebinding evenkeel-get-configmaps-ann -n default --role=evenkeel-get-configmaps --user=ann`},
		{"a service account", deny("system:serviceaccount:ci:bot", "get", "evenkeel.dev", "nodeconfigs", "", "a"), `evenkeel's role evenkeel-view includes this permission; an administrator can grant it:
kubectl create clusterrolebinding evenkeel-view-system:serviceaccount:ci:bot --clusterrole=evenkeel-view --serviceaccount=ci:bot
kubectl create rolebinding evenkeel-view-system:serviceaccount:ci:bot -n default --role=evenkeel-view --serviceaccount=ci:bot`},
		{"a name with special characters", deny("ann$(id)/o'x", "get", "evenkeel.dev", "nodeconfigs", "", "a"), `evenkeel's role evenkeel-view includes this permission; an administrator can grant it:
kubectl create clusterrolebinding 'evenkeel-view-ann$(id)-o'\''x' --clusterrole=evenkeel-view --user='ann$(id)/o'\''x'
kubectl create rolebinding 'evenkeel-view-ann$(id)-o'\''x' -n default --role=evenkeel-view --user='ann$(id)/o'\''x'`},
		{"a resource that is no plain word", deny("ann", "get", "evenkeel.dev", "nodes;reboot", "", "a"), `ask an administrator for this permission; kubectl auth can-i --list shows your permissions`},
		{"nobody", deny("system:anonymous", "get", "evenkeel.dev", "nodeconfigs", "", "a"), `the request had no credentials: log in, or choose another --context, --kubeconfig or --token`},
		{"impersonation", deny("ann", "impersonate", "", "users", "", "b"), `--as and --as-group need the permission to impersonate: omit them, or ask an administrator for it`},
	} {
		assert.Equal(t, strings.TrimPrefix(WithAdvice(tt.denied, "").Error(), tt.denied.Error()+"\n"), tt.want, tt.name)
	}
}

func TestTheAdviceNamesEveryRoleThatACommandNeeds(t *testing.T) {
	denied := deny("ann", "get", "evenkeel.dev", "nodeconfigrollouts", "", "a")
	for _, tt := range []struct {
		needed []string
		want   string
	}{
		{nil, "evenkeel's role evenkeel-view includes this permission; an administrator can grant it:"},
		{[]string{"evenkeel-operator"}, "evenkeel's role evenkeel-operator includes this permission; an administrator can grant it:"},
		{[]string{"evenkeel-preflight"}, "this command needs evenkeel's roles evenkeel-view and evenkeel-preflight; an administrator can grant them:"},
	} {
		first, binds, _ := strings.Cut(strings.TrimPrefix(WithAdvice(denied, "", tt.needed...).Error(), denied.Error()+"\n"), "\n")
		assert.Equal(t, first, tt.want)
		for _, role := range tt.needed {
			assert.That(t, strings.Contains(binds, "--clusterrole="+role+" --user=ann"), "%s is not bound: %s", role, binds)
		}
	}
}
