// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api_test tests evenkeel's API on a real API server: what the
// manifests in config make the server accept, reject and show, and what each
// identity may do. It must not know the agent: the tests make its requests
// themselves.
package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

const (
	root         = "../.."
	timeout      = 30 * time.Second
	pollInterval = 50 * time.Millisecond
)

var (
	nodeConfigs = v1alpha1.GroupVersion.WithResource("nodeconfigs")
	cluster     *localcluster.Cluster
)

// TestMain starts a cluster that has nothing of evenkeel yet, and applies
// config/base to it as a user does.
func TestMain(m *testing.M) {
	os.Exit(localcluster.RunTests(localcluster.Options{Manifests: localcluster.NoManifests}, func(ctx context.Context, c *localcluster.Cluster) (int, error) {
		cluster = c
		if _, err := kubectl(ctx, "apply", "-k", filepath.Join(root, "config/base")); err != nil {
			return 0, err
		}
		if err := awaitEnforcement(ctx); err != nil {
			return 0, err
		}

		return m.Run(), nil
	}))
}

// awaitEnforcement waits until the CRDs are served and the admission policies
// refuse: the API has no other sign for that.
func awaitEnforcement(ctx context.Context) (err error) {
	defer must.Catch(&err)

	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	node := must.Get(configFor("system:node:one", "system:nodes"))
	for _, args := range [][]string{
		{"role", configMapWriter, "--verb=*", "--resource=configmaps"}, {"rolebinding", configMapWriter, "--role=" + configMapWriter, "--user=" + configMapWriter},
	} {
		must.Get(kubectl(ctx, append([]string{"create", "-n", v1alpha1.SystemNamespace}, args...)...))
	}

	for _, args := range [][]string{
		{"clusterrole", configMapWriter, "--verb=create", "--resource=nodeconfigs.evenkeel.dev"}, {"clusterrolebinding", configMapWriter, "--clusterrole=" + configMapWriter, "--user=" + configMapWriter},
	} {
		must.Get(kubectl(ctx, append([]string{"create"}, args...)...))
	}

	writer := must.Get(configFor(configMapWriter))
	for policy, create := range map[string]func(context.Context) error{
		"evenkeel-node": func(ctx context.Context) error {
			return errorOf(dynamic.NewForConfigOrDie(node).Resource(nodeConfigs).Create(ctx, parse("metadata: {name: another}"), dryRun))
		},
		"evenkeel-revision": func(ctx context.Context) error {
			return errorOf(dynamic.NewForConfigOrDie(writer).Resource(configMaps).Namespace(v1alpha1.SystemNamespace).Create(ctx, revision("refused"), dryRun))
		},
		"evenkeel-preflight": func(ctx context.Context) error {
			o := parse("metadata: {name: refused, annotations: {evenkeel.dev/preflight: '{}'}}")
			return errorOf(dynamic.NewForConfigOrDie(writer).Resource(nodeConfigs).Create(ctx, o, dryRun))
		},
		"evenkeel-record": func(ctx context.Context) error {
			o := parse("metadata: {name: refused, annotations: {evenkeel.dev/observed: '{}'}}")
			return errorOf(dynamic.NewForConfigOrDie(writer).Resource(nodeConfigs).Create(ctx, o, dryRun))
		},
		"evenkeel-event": func(ctx context.Context) error {
			o := parse("{metadata: {name: refused}, involvedObject: {kind: NodeConfigRollout, namespace: default}}")
			o.SetAPIVersion("v1")
			o.SetKind("Event")
			return errorOf(dynamic.NewForConfigOrDie(node).Resource(corev1.SchemeGroupVersion.WithResource("events")).Namespace("default").Create(ctx, o, dryRun))
		},
		"evenkeel-rollout": func(ctx context.Context) error {
			o := rollout("refused", "nodeSelector: {matchLabels: {no label: a}}")
			return errorOf(dynamic.NewForConfigOrDie(cluster.AdminConfig()).Resource(rollouts).Create(ctx, o, dryRun))
		},
	} {
		err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
			err := create(ctx)
			return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'"), nil
		})
		if err != nil {
			return fmt.Errorf("the admission policy %s is not enforced: %w", policy, err)
		}
	}

	return nil
}

// kubectl runs the real kubectl as administrator and returns what it printed.
func kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin/tools/kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.AdminKubeconfig(), "KUBECTL_KUBERC=false")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}

	return stdout.String(), nil
}

// clientFor is a client for NodeConfigs, with a certificate of this user in
// these groups.
func clientFor(user string, groups ...string) (_ dynamic.ResourceInterface, err error) {
	defer must.Catch(&err)

	config := must.Get(configFor(user, groups...))
	client := must.Get(dynamic.NewForConfig(config))

	return client.Resource(nodeConfigs), nil
}

func configFor(user string, groups ...string) (*rest.Config, error) {
	kubeconfig, err := cluster.ClientKubeconfig(user, groups...)
	if err != nil {
		return nil, err
	}

	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

// asAccount is for a ServiceAccount, as which an administrator acts.
func asAccount(namespace, account string) *rest.Config {
	config := cluster.AdminConfig()
	config.QPS = -1
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}

	return config
}

func asController() *rest.Config { return asAccount(v1alpha1.SystemNamespace, "evenkeel-controller") }

func as(t *testing.T, user string, groups ...string) dynamic.ResourceInterface {
	t.Helper()
	client := assert.Value(clientFor(user, groups...))(t)
	return client
}

func asAdmin(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	return as(t, "admin", "system:masters")
}

func asNode(t *testing.T, name string) dynamic.ResourceInterface {
	t.Helper()
	return as(t, "system:node:"+name, "system:nodes")
}

// parse makes a NodeConfig of what a manifest says below apiVersion and kind.
// It panics if that is no YAML.
func parse(text string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(data, &o.Object)
	}
	if err != nil {
		panic(err)
	}

	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeConfig"))

	return o
}

// given creates a NodeConfig as administrator and removes it when the test
// ends.
func given(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := assert.Value(asAdmin(t).Create(t.Context(), parse(text), metav1.CreateOptions{FieldValidation: "Strict"}))(t)
	removeAtEnd(t, o.GetName())
	return o
}

func removeAtEnd(t *testing.T, name string) {
	t.Helper()
	admin := asAdmin(t)
	t.Cleanup(func() {
		err := admin.Delete(context.Background(), name, metav1.DeleteOptions{})
		assert.That(t, err == nil || apierrors.IsNotFound(err), "%v", err)
	})
}

func get(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	o := assert.Value(asAdmin(t).Get(t.Context(), name, metav1.GetOptions{}))(t)
	return o
}

// answer is what the API server said to a request that it must refuse with
// these words, or must not refuse.
type answer struct {
	request string
	err     error
	refused string
}

func wantAnswers(t *testing.T, answers []answer) {
	t.Helper()
	for _, a := range answers {
		t.Run(a.request, func(t *testing.T) {
			if a.refused == "" {
				assert.OK(t, a.err)
			} else {
				wantRefused(t, a.err, http.StatusForbidden, a.refused)
			}
		})
	}
}

// wantInvalid checks that the API server refused an object, or did not know one
// of its fields.
func wantInvalid(t *testing.T, err error, words ...string) {
	t.Helper()
	code := int32(http.StatusUnprocessableEntity)
	if strings.HasPrefix(words[0], "unknown field") {
		code = http.StatusBadRequest
	}

	wantRefused(t, err, code, words...)
}

// wantRefused fails unless the error is a refusal, with this status code, that
// says all of these words.
func wantRefused(t *testing.T, err error, code int32, words ...string) {
	t.Helper()
	var refused apierrors.APIStatus
	if !errors.As(err, &refused) {
		t.Errorf("got error %v, want a refusal with %q", err, words)
		return
	}

	assert.That(t, refused.Status().Code == code, "got status %d, want %d: %v", refused.Status().Code, code, err)

	for _, w := range words {
		assert.That(t, strings.Contains(err.Error(), w), "got error %q, want in it %q", err, w)
	}
}
