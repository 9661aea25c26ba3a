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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

	// admin and objects are clients of an administrator.
	admin   kubernetes.Interface
	objects client.Client
)

// TestMain starts a cluster that has nothing of evenkeel yet, and applies
// config/base to it as a user does.
func TestMain(m *testing.M) {
	os.Exit(localcluster.RunTests(localcluster.Options{Manifests: localcluster.NoManifests}, func(ctx context.Context, c *localcluster.Cluster) (_ int, err error) {
		defer must.Catch(&err)

		cluster = c
		config := cluster.AdminConfig()
		config.QPS = -1
		admin = kubernetes.NewForConfigOrDie(config)
		objects = must.Get(client.New(config, client.Options{}))
		must.Get(kubectl(ctx, "apply", "-k", filepath.Join(root, "config/base")))
		must.OK(awaitEnforcement(ctx))

		return m.Run(), nil
	}))
}

// awaitEnforcement waits until the CRDs are served and the admission policies
// refuse: the API has no other sign for that.
func awaitEnforcement(ctx context.Context) (err error) {
	defer must.Catch(&err)

	for _, command := range []string{
		"create -n evenkeel-system role wilma --verb=* --resource=configmaps",
		"create -n evenkeel-system rolebinding wilma --role=wilma --user=wilma",
		"create clusterrole wilma --verb=create --resource=nodeconfigs.evenkeel.dev",
		"create clusterrolebinding wilma --clusterrole=wilma --user=wilma",
	} {
		must.Get(kubectl(ctx, strings.Fields(command)...))
	}

	event := parse("{metadata: {name: refused, namespace: default}, involvedObject: {kind: NodeConfigRollout, namespace: default}}")
	event.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Event"))
	node, writer := nodeConfig("one"), configFor(configMapWriter)
	for policy, refused := range map[string]struct {
		as     *rest.Config
		object client.Object
	}{
		"evenkeel-node":      {node, parse("metadata: {name: another}")},
		"evenkeel-revision":  {writer, revision("refused")},
		"evenkeel-preflight": {writer, parse("metadata: {name: refused, annotations: {evenkeel.dev/preflight: '{}'}}")},
		"evenkeel-record":    {writer, parse("metadata: {name: refused, annotations: {evenkeel.dev/observed: '{}'}}")},
		"evenkeel-event":     {node, event},
		"evenkeel-rollout":   {cluster.AdminConfig(), rollout("refused", "nodeSelector: {matchLabels: {no label: a}}")},
	} {
		c := must.Get(client.New(refused.as, client.Options{}))
		err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
			err := c.Create(ctx, refused.object.DeepCopyObject().(client.Object), client.DryRunAll)
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

// configFor is for a user in these groups, as whom an administrator acts.
func configFor(user string, groups ...string) *rest.Config {
	config := cluster.AdminConfig()
	config.QPS = -1
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}

	return config
}

func nodeConfig(name string) *rest.Config { return configFor("system:node:"+name, "system:nodes") }

func asAccount(namespace, account string) *rest.Config {
	return configFor("system:serviceaccount:"+namespace+":"+account, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
}

func asController() *rest.Config { return asAccount(v1alpha1.SystemNamespace, "evenkeel-controller") }

// as is a client for NodeConfigs.
func as(config *rest.Config) dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(config).Resource(nodeConfigs)
}

func asAdmin() dynamic.ResourceInterface { return as(configFor("admin", "system:masters")) }

func asNode(name string) dynamic.ResourceInterface { return as(nodeConfig(name)) }

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
	return created(t, parse(text))
}

// created creates an object as administrator and removes it when the test ends.
func created[O client.Object](t *testing.T, o O) O {
	t.Helper()
	assert.NoError(t, objects.Create(t.Context(), o, client.FieldValidation("Strict")))
	removeAtEnd(t, o)

	return o
}

// removeAtEnd removes an object, if it is still there when the test ends.
func removeAtEnd(t *testing.T, o client.Object) {
	t.Helper()
	t.Cleanup(func() {
		assert.OK(t, client.IgnoreNotFound(objects.Delete(context.Background(), o, client.GracePeriodSeconds(0))))
	})
}

// merge patches an object, or its status.
func merge(t *testing.T, of dynamic.ResourceInterface, name, patch string, subresource ...string) error {
	t.Helper()
	return assert.Err(of.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...))
}

func get(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	return assert.Value(asAdmin().Get(t.Context(), name, metav1.GetOptions{}))(t)
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
