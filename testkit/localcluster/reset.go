// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// A control plane is reset in etcd, below the API server: everything that is
// not in a snapshot is deleted, and everything else gets the value that it had.
// No finalizer, admission policy or missing controller can prevent that, and
// the API server learns of it as of every change, because it watches etcd.

// snapshot is what etcd holds for the API server, and which resources the API
// server serves with it.
type snapshot struct {
	keys   map[string][]byte
	served []string
}

const firstKey, afterLastKey = "/registry/", "/registry0"

// ownKeys are objects that the API server keeps up to date by itself.
var ownKeys = []string{
	"/registry/leases/kube-system/apiserver-", "/registry/flowschemas/", "/registry/prioritylevelconfigurations/", "/registry/masterleases/",
}

// isOwnKey reports whether the API server keeps an object up to date. It does
// not do that with evenkeel's own flow schemas.
func isOwnKey(key string) bool {
	return slices.ContainsFunc(ownKeys, func(own string) bool { return strings.HasPrefix(key, own) }) && !strings.Contains(key, "/evenkeel")
}

func (c *Cluster) takeSnapshot(ctx context.Context) (_ *snapshot, err error) {
	defer must.Catch(&err)

	return &snapshot{keys: must.Get(c.readEtcd(ctx)), served: must.Get(c.served(ctx))}, nil
}

// reset makes the control plane what it was when the snapshot was taken, and
// waits until the API server has noticed.
func (m *member) reset(ctx context.Context, to *snapshot) (err error) {
	defer must.Catch(&err)

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	m.last = to
	must.OK(m.StartAPIServer(ctx)) // the borrower may have stopped it
	changed := must.Get(m.writeEtcd(ctx, to.keys))
	if len(changed) == 0 {
		return nil
	}

	touched := func(resources ...string) bool {
		return slices.ContainsFunc(changed, func(key string) bool {
			return slices.ContainsFunc(resources, func(r string) bool { return strings.Contains(key, "/"+r+"/") })
		})
	}
	if touched("customresourcedefinitions", "apiservices") {
		must.OK(retry(ctx, func(ctx context.Context) error {
			served := must.Get(m.served(ctx))
			must.That(slices.Equal(served, to.served), "the API server serves %q, want %q", served, to.served)

			return nil
		}, always))
	}
	if touched("validatingadmissionpolicies", "validatingadmissionpolicybindings") {
		must.OK(m.awaitPolicies(ctx))
	}

	return m.listEverything(ctx, to.served)
}

// readEtcd returns all keys and values of the API server, except those that it
// keeps up to date by itself.
func (c *Cluster) readEtcd(ctx context.Context) (keys map[string][]byte, err error) {
	defer must.Catch(&err)

	var found struct {
		KVs []struct{ Key, Value []byte } `json:"kvs"`
	}
	must.OK(c.callEtcd(ctx, "range", map[string]any{"key": []byte(firstKey), "range_end": []byte(afterLastKey)}, &found))
	keys = map[string][]byte{}
	for _, kv := range found.KVs {
		if key := string(kv.Key); !isOwnKey(key) {
			keys[key] = kv.Value
		}
	}

	return keys, nil
}

// writeEtcd makes etcd hold exactly these keys, and returns those that it had
// to change.
func (c *Cluster) writeEtcd(ctx context.Context, want map[string][]byte) (changed []string, err error) {
	defer must.Catch(&err)

	have := must.Get(c.readEtcd(ctx))
	var operations []any
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[key]; !ok {
			changed = append(changed, key)
			operations = append(operations, map[string]any{"request_delete_range": map[string]any{"key": []byte(key)}})
		}
	}

	for _, key := range slices.Sorted(maps.Keys(want)) {
		if value, ok := have[key]; !ok || !bytes.Equal(value, want[key]) {
			changed = append(changed, key)
			operations = append(operations, map[string]any{"request_put": map[string]any{"key": []byte(key), "value": want[key]}})
		}
	}

	for batch := range slices.Chunk(operations, 100) { // etcd refuses more than 128 operations in a transaction
		must.OK(c.callEtcd(ctx, "txn", map[string]any{"success": batch}, &struct{}{}))
	}

	return changed, nil
}

// callEtcd calls a method of etcd's KV service through its JSON gateway.
func (c *Cluster) callEtcd(ctx context.Context, method string, in, out any) (err error) {
	defer must.Catch(&err)

	body := must.Get(json.Marshal(in))
	url := fmt.Sprintf("http://127.0.0.1:%d/v3/kv/%s", c.etcdPort, method)
	request := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body)))
	response := must.Get(http.DefaultClient.Do(request))
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 1024)) // only for the error
		return fmt.Errorf("%s answers %s: %s", url, response.Status, said)
	}

	return json.NewDecoder(response.Body).Decode(out)
}

// served returns the resources that the API server serves, and the group
// versions of which it has an OpenAPI document.
func (c *Cluster) served(ctx context.Context) (_ []string, err error) {
	defer must.Catch(&err)

	client := must.Get(discovery.NewDiscoveryClientForConfig(c.admin))
	_, lists := must.Get2(client.ServerGroupsAndResources())
	var served []string
	for _, list := range lists {
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") {
				served = append(served, list.GroupVersion+" "+r.Name)
			}
		}
	}

	raw := must.Get(client.RESTClient().Get().AbsPath("/openapi/v3").DoRaw(ctx))
	var documents struct{ Paths map[string]any }
	must.OK(json.Unmarshal(raw, &documents))
	for path := range documents.Paths {
		served = append(served, path)
	}

	slices.Sort(served)

	return served, nil
}

// listEverything lists all objects of every resource. The API server answers
// such a list only when its cache has what etcd has.
func (c *Cluster) listEverything(ctx context.Context, served []string) (err error) {
	defer must.Catch(&err)

	config := c.AdminConfig()
	config.WarningHandler = rest.NoWarnings{} // some resources are deprecated
	client := must.Get(dynamic.NewForConfig(config))
	for _, line := range served {
		version, resource, ok := strings.Cut(line, " ")
		if !ok {
			continue // an OpenAPI document
		}

		gv := must.Get(schema.ParseGroupVersion(version))
		err = retry(ctx, func(ctx context.Context) error {
			_, err := client.Resource(gv.WithResource(resource)).List(ctx, metav1.ListOptions{})
			return err
		}, isTransient)
		if err != nil {
			return fmt.Errorf("list %s: %w", line, err)
		}
	}

	return nil
}

// awaitBootstrap waits until the API server has created what it creates in an
// empty etcd, also after it is ready.
func (c *Cluster) awaitBootstrap(ctx context.Context) (err error) {
	defer must.Catch(&err)

	core := must.Get(kubernetes.NewForConfig(c.admin)).CoreV1()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	return retry(ctx, func(ctx context.Context) error {
		for _, name := range []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease, metav1.NamespaceDefault} {
			must.Get(core.Namespaces().Get(ctx, name, metav1.GetOptions{}))
		}

		must.Get(core.Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{}))

		return nil
	}, always)
}

// awaitPolicies waits until the API server enforces the admission policies that
// it has, and no others. It adds a policy, waits until that one is enforced,
// and removes it: the API server takes over all policies at once, about every
// second.
func (c *Cluster) awaitPolicies(ctx context.Context) (err error) {
	defer must.Catch(&err)

	client := must.Get(kubernetes.NewForConfig(c.admin))
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	name := fmt.Sprintf("evenkeel-localcluster-%d", time.Now().UnixNano())
	policies, bindings := client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	must.Get(policies.Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				ResourceNames: []string{name},
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "false"}},
		},
	}, metav1.CreateOptions{}))
	defer func() { err = errors.Join(err, policies.Delete(ctx, name, metav1.DeleteOptions{})) }()
	must.Get(bindings.Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{}))
	defer func() { err = errors.Join(err, bindings.Delete(ctx, name, metav1.DeleteOptions{})) }()
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

	return retry(ctx, func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, probe, dryRun)
		switch {
		case err == nil:
			return errors.New("the last policy is not enforced yet")
		case apierrors.IsInvalid(err) || apierrors.IsForbidden(err):
			return nil
		}

		return err
	}, always)
}
