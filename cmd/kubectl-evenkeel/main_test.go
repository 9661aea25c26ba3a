// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/jsonpath"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/kubeadm"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// The transcripts in testdata run the command line through its main, against a
// real API server. There is no controller: the command "status" plays its part.

var (
	cluster *localcluster.Cluster
	admin   client.WithWatch
	// nothing is a cluster that has nothing of evenkeel; nil until a script
	// needs it.
	nothing *localcluster.Cluster
)

func TestMain(m *testing.M) {
	testscript.Main(withCluster{m}, map[string]func(){"kubectl-evenkeel": main})
}

// withCluster runs tests beside a cluster.
type withCluster struct{ m *testing.M }

func (w withCluster) Run() int {
	return localcluster.RunTests(localcluster.Options{}, func(_ context.Context, c *localcluster.Cluster) (code int, err error) {
		cluster = c
		defer func() {
			if nothing != nil {
				err = errors.Join(err, nothing.Stop())
			}
		}()
		if admin, err = cluster.Client(v1alpha1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme,
			coordinationv1.AddToScheme, authorizationv1.AddToScheme); err != nil {
			return 0, err
		}

		return w.m.Run(), nil
	})
}

func TestCommandLine(t *testing.T) { runScripts(t, "testdata", nil) }

// The scripts of this directory need kubeadm, kube-proxy and the oldest
// kubelet: see MORE_TESTS in the Makefile.
func TestCommandLineForComponents(t *testing.T) { runScripts(t, "testdata/components", nil) }

// runScripts runs the scripts of a directory. setup may change their
// environment.
func runScripts(t *testing.T, dir string, setup func(*testscript.Env)) {
	t.Helper()
	tools := assert.Value(filepath.Abs("../../bin/tools"))(t)
	testscript.RunT(inTurn{t}, testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			env.Setenv("KUBECONFIG", cluster.AdminKubeconfig())
			env.Setenv("PATH", tools+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv("TERM", "xterm")
			env.Setenv("GOCOVERDIR", os.Getenv("GOCOVERDIR")) // of a binary that counts coverage
			env.Setenv("OLDEST", filepath.Join(tools, "kubelets", "v1.33.13", "kubelet"))
			if setup != nil {
				setup(env)
			}

			return errors.Join(addFiles(env.WorkDir), empty(t.Context()))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":       exits,
			"wrong":       wrong,
			"kubeadm":     takes("FILE", runKubeadm),
			"edit":        takes("NAME KEY OLD NEW", edit),
			"old":         takes("NAME KEY OLD NEW", old),
			"supply":      takes("NAME KEY FILE", supply),
			"reader":      takes("", reader),
			"credentials": takes("", credentials),
			"status":      takes("NAME FILE", status),
			"as":          takes("USER", as),
			"may":         takes("USER", may),
			"bare":        takes("", bare),
			"own":         takes("", own),
			"expect":      takes("OBJECT PATH VALUE", expect),
			"stopped":     takes("NAME", stopped),
			"huge":        takes("FILE", huge),
			"down":        takes("", func(ts *testscript.TestScript, _ []string) { ts.Check(cluster.StopAPIServer()) }),
			"up": takes("", func(ts *testscript.TestScript, _ []string) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				ts.Check(cluster.StartAPIServer(ctx))
			}),
		},
	})
}

// takes makes a command of scripts of a function, with a check of its
// arguments.
func takes(usage string, f func(*testscript.TestScript, []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != len(strings.Fields(usage)) {
			ts.Fatalf("this command takes: %s", usage)
		}

		f(ts, args)
	}
}

// addFiles copies the files that several scripts use; a script may have a file
// of its own in place of one.
func addFiles(dir string) error {
	files := os.DirFS("testdata/files")
	names, err := fs.Glob(files, "*")
	for _, name := range names {
		text, readErr := fs.ReadFile(files, name)
		if _, missing := os.Stat(filepath.Join(dir, name)); os.IsNotExist(missing) {
			err = errors.Join(err, readErr, os.WriteFile(filepath.Join(dir, name), text, 0o600))
		}
	}

	return err
}

// inTurn runs scripts one after another: they share a cluster, and some list
// all that there is.
type inTurn struct{ *testing.T }

func (t inTurn) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { f(inTurn{t}) })
}
func (inTurn) Parallel()     {}
func (inTurn) Verbose() bool { return testing.Verbose() }

// empty removes what an earlier script left.
func empty(ctx context.Context) error {
	system := client.InNamespace(v1alpha1.SystemNamespace)
	return errors.Join(
		admin.DeleteAllOf(ctx, &v1alpha1.NodeConfigRollout{}), admin.DeleteAllOf(ctx, &v1alpha1.NodeConfig{}),
		admin.DeleteAllOf(ctx, &corev1.Node{}), admin.DeleteAllOf(ctx, &corev1.ConfigMap{}, system),
		admin.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(metav1.NamespaceSystem)),
		admin.DeleteAllOf(ctx, &appsv1.DaemonSet{}, client.InNamespace(metav1.NamespaceSystem)),
	)
}

// exits N program args...: runs a program that must end with this code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N program [args...]")
	}

	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, is := errors.AsType[*exec.ExitError](err)
		if !is {
			ts.Fatalf("%v", err)
		}

		code = exit.ExitCode()
	}

	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

var uidOf = regexp.MustCompile(`of\(([-a-z0-9]+)\)`)

// status NAME FILE: writes the status of a rollout, as the controller would; it
// answers the newest spec unless the file has an observedGeneration. of(NAME)
// in it is the UID of a ConfigMap.
func status(ts *testscript.TestScript, args []string) {
	text := uidOf.ReplaceAllStringFunc(ts.ReadFile(args[1]), func(of string) string {
		cm := &corev1.ConfigMap{}
		ts.Check(admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: uidOf.FindStringSubmatch(of)[1]}, cm))
		return string(cm.UID)
	})
	ts.Check(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		r := &v1alpha1.NodeConfigRollout{}
		if err := admin.Get(context.Background(), client.ObjectKey{Name: args[0]}, r); err != nil {
			return err
		}

		r.Status = v1alpha1.NodeConfigRolloutStatus{ObservedGeneration: r.Generation}
		if err := yaml.UnmarshalStrict([]byte(text), &r.Status); err != nil {
			return err
		}

		return admin.Status().Update(context.Background(), r)
	}))
}

// as USER: goes on as a user without any rights.
func as(ts *testscript.TestScript, args []string) {
	path, err := cluster.ClientKubeconfig(args[0])
	ts.Check(err)
	ts.Setenv("KUBECONFIG", path)
}

// may USER: goes on as a user who may look at everything of evenkeel, and write
// nothing.
func may(ts *testscript.TestScript, args []string) {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: args[0]}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"", v1alpha1.GroupName}, Resources: []string{"nodes", "configmaps", "nodeconfigs", "nodeconfigrollouts"},
		Verbs: []string{"get", "list", "watch"},
	}}}
	grant(ts, role, bindingOf(args[0], args[0]))
	as(ts, args)
	ts.Check(allowed(context.Background(), args[0], v1alpha1.GroupName, "nodeconfigrollouts"))
}

// bindingOf gives a user a role in the whole cluster.
func bindingOf(user, role string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
}

// grant creates roles and their bindings until the script ends.
func grant(ts *testscript.TestScript, objects ...client.Object) {
	for _, o := range objects {
		ts.Check(admin.Create(context.Background(), o))
		ts.Defer(func() { ts.Check(admin.Delete(context.Background(), o)) })
	}
}

// allowed waits until a user may list a resource: the API server knows a right
// a moment after it was granted.
func allowed(ctx context.Context, user, group, resource string) error {
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Group: group, Resource: resource},
		}}
		err := admin.Create(ctx, review)

		return review.Status.Allowed, err
	})
}

// own: lets a script change what is installed, which is repaired after it.
// $CONFIG is where the manifests are, and $NOBODY the kubeconfig of a user
// without any rights.
func own(ts *testscript.TestScript, _ []string) {
	nobody, err := cluster.ClientKubeconfig("nobody")
	ts.Check(err)
	manifests, err := filepath.Abs("../../config")
	ts.Check(err)
	ts.Setenv("NOBODY", nobody)
	ts.Setenv("CONFIG", manifests)
	ts.Defer(func() { ts.Check(cluster.Apply(context.Background(), filepath.Join(manifests, "api"))) })
}

// bare: goes on with a cluster that has nothing of evenkeel. Scripts share it:
// they must not write to it.
func bare(ts *testscript.TestScript, _ []string) {
	if nothing == nil {
		c, err := localcluster.Borrow(context.Background(), localcluster.Options{Manifests: localcluster.NoManifests}) // it has deadlines of its own
		ts.Check(err)
		nothing = c
	}

	ts.Setenv("KUBECONFIG", nothing.AdminKubeconfig())
}

// stopped NAME: adds the ConfigMap of a stopped revision of a rollout's
// template.
func stopped(ts *testscript.TestScript, args []string) {
	r := &v1alpha1.NodeConfigRollout{}
	ts.Check(admin.Get(context.Background(), client.ObjectKey{Name: args[0]}, r))
	content, err := fleet.ContentOf(r.Spec.Template, nil)
	ts.Check(err)
	ts.Check(admin.Create(context.Background(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.SystemNamespace, Name: fleet.RevisionName(r.Name, content.SHA256),
			Labels:      map[string]string{v1alpha1.LabelRollout: r.Name, v1alpha1.LabelRevision: "3"},
			Annotations: map[string]string{v1alpha1.AnnotationStopped: "TooManyFailures"},
		},
		Immutable: new(true), Data: map[string]string{content.Key: string(content.Data)},
	}))
}

// expect OBJECT PATH VALUE: checks a field of a rollout, or of nodeconfig/NAME,
// by a JSON path as kubectl takes it. "" means that the object lacks the field.
func expect(ts *testscript.TestScript, args []string) {
	r := &unstructured.Unstructured{}
	r.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeConfigRollout"))
	name, isNode := strings.CutPrefix(args[0], "nodeconfig/")
	if isNode {
		r.SetKind("NodeConfig")
	}

	ts.Check(admin.Get(context.Background(), client.ObjectKey{Name: name}, r))
	path, got := jsonpath.New("field").AllowMissingKeys(true), &strings.Builder{}
	ts.Check(path.Parse("{" + args[1] + "}"))
	ts.Check(path.Execute(got, r.Object))
	if got.String() != args[2] {
		ts.Fatalf("%s of %s is %q, want %q", args[1], args[0], got, args[2])
	}
}

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

// The message of each wrong use in testdata/wrong says what happened, why, and
// what to do next.
func TestWrongUsesAreExplained(t *testing.T) {
	taken := assert.Value(net.Listen("tcp4", "127.0.0.1:0"))(t)
	t.Cleanup(func() {
		assert.OK(t, taken.Close())
	})
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	runScripts(t, filepath.Join("testdata", "wrong"), func(env *testscript.Env) {
		env.Setenv("TAKEN", port)
		env.Setenv("SERVER", cluster.AdminConfig().Host)
	})
}

var (
	// raw are words of libraries, which say nothing to users.
	raw = regexp.MustCompile(`unknown reason|invalid character|dial tcp|deadline exceeded|x509:|serializer|failed to get server groups|prevented the request|requested resource|unexpected end|no such file|\bEOF\b`)
	// next are the words with which messages say what to do.
	next = regexp.MustCompile(`(?i)\b(use|see|correct|choose|must|omit|needs?|log in|list them|list the nodes|check|get a new|existing|available|did you mean|create|install|takes|an administrator can|ask|kubectl [a-z]+)\b`)
)

// wrong CODE args...: runs the command line, which must end with this code, and
// with a message that says what to do.
func wrong(ts *testscript.TestScript, neg bool, args []string) {
	exits(ts, neg, append([]string{args[0], "kubectl-evenkeel"}, args[1:]...))
	text := ts.ReadFile("stderr")
	if args[0] == "0" {
		return
	}
	if !strings.Contains("\n"+text, "\nerror: ") || !next.MatchString(text) {
		ts.Fatalf("the message does not say what is wrong and what to do: %s", text)
	}
	if words := raw.FindString(text); words != "" || len(text) > 1500 {
		ts.Fatalf("the message has the raw words %q, or is too long: %s", words, text)
	}
}

// huge FILE: creates a file that is larger than any configuration.
func huge(ts *testscript.TestScript, args []string) {
	text := fmt.Appendf(nil, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n# %s\n", bytes.Repeat([]byte("x"), 2<<20))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), text, 0o600))
}
