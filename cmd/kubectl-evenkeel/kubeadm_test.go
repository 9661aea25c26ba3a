// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/operator/kubeadm"
)

// kubeadm FILE: has the real kubeadm upload all that it keeps in kube-system.
func runKubeadm(ts *testscript.TestScript, args []string) {
	ts.Check(cluster.Kubeadm(context.Background(), ts.ReadFile(args[0]), "init phase upload-config all", "init phase addon all"))
}

// change changes a ConfigMap of kube-system.
func change(ts *testscript.TestScript, name string, change func(*corev1.ConfigMap)) {
	ts.Check(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		cm := &corev1.ConfigMap{}
		if err := admin.Get(context.Background(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}, cm); err != nil {
			return err
		}

		change(cm)

		return admin.Update(context.Background(), cm)
	}))
}

// edit NAME KEY OLD NEW: replaces a word in what a ConfigMap of kube-system
// holds, as somebody does by hand.
func edit(ts *testscript.TestScript, args []string) {
	change(ts, args[0], func(cm *corev1.ConfigMap) {
		before := cm.Data[args[1]]
		if cm.Data[args[1]] = strings.Replace(before, args[2], strings.ReplaceAll(args[3], `\n`, "\n"), 1); cm.Data[args[1]] == before {
			ts.Fatalf("there is no %q in it", args[2])
		}
	})
}

// old NAME KEY OLD NEW: the same, as an old kubeadm would have generated it:
// with its signature.
func old(ts *testscript.TestScript, args []string) {
	edit(ts, args)
	change(ts, args[0], func(cm *corev1.ConfigMap) {
		cm.Annotations[kubeadm.KubeadmSignature] = kubeadm.Signature(cm)
	})
}

// supply NAME KEY FILE: puts a user's own into a ConfigMap of kube-system,
// without a signature.
func supply(ts *testscript.TestScript, args []string) {
	change(ts, args[0], func(cm *corev1.ConfigMap) {
		kubeadm.Unsign(cm)
		cm.Data[args[1]] = ts.ReadFile(args[2])
	})
}

// credentials: puts into the ConfigMap of kube-proxy what nobody should see.
func credentials(ts *testscript.TestScript, _ []string) {
	change(ts, "kube-proxy", func(cm *corev1.ConfigMap) {
		cm.Data["kubeconfig.conf"] += "\n- name: mallory\n  user: {token: TOPSECRET}\n"
		cm.BinaryData = map[string][]byte{"extra": {0, 1}}
	})
}

// reader: gives the user "nobody" the rights to plan, and no more.
func reader(ts *testscript.TestScript, _ []string) {
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "reader"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"get"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "nobody"}},
	}
	grant(ts, role, binding)
}
