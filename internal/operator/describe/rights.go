// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"cmp"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/config"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// right is a permission that the API server found missing.
type right struct {
	user, verb, resource, group, namespace, name string
}

// denial is how the API server names a missing permission. Only plain words
// match, because they become parts of a command.
var denial = regexp.MustCompile(`User ("(?:[^"\\]|\\.)*") cannot ([a-z]+) resource "([a-z0-9./-]*)" in API group "([a-z0-9.-]*)" (?:at the cluster scope|in the namespace "([^"]*)")`)

// rightIn returns the permission that a Status says is missing. ok is false if
// it names none: then admission refused the request.
func rightIn(s metav1.Status) (r right, ok bool) {
	m := denial.FindStringSubmatch(s.Message)
	if m == nil {
		return r, false
	}

	r = right{verb: m[2], resource: m[3], group: m[4], namespace: m[5]}
	if s.Details != nil {
		r.name = s.Details.Name
	}

	var err error
	r.user, err = strconv.Unquote(m[1])

	return r, err == nil
}

// ofForbidden explains a request that the API server forbids to a command that
// needs these roles.
func ofForbidden(s metav1.Status, needed []string) explanation {
	r, ok := rightIn(s)
	switch {
	case !ok && strings.Contains(s.Message, " cannot "):
		return explanation{next: "ask an administrator for this permission; kubectl auth can-i --list shows your permissions"}
	case !ok:
		return explanation{next: "an admission policy or webhook of the cluster refused the request; permissions do not matter: correct what " +
			"it names, or ask an administrator"}
	case r.user == "system:anonymous":
		return explanation{next: "the request had no credentials: log in, or choose another --context, --kubeconfig or --token"}
	case r.verb == "impersonate":
		return explanation{next: "--as and --as-group need the permission to impersonate: omit them, or ask an administrator for it"}
	}

	return explanation{next: r.advice(needed)}
}

// advice names the roles of evenkeel that the command needs, or the one that
// includes the permission, and the commands that bind them.
func (r right) advice(needed []string) string {
	name := r.role(needed)
	if name == "" {
		words := "no role of evenkeel includes this permission"
		if r.resource == "nodes/proxy" {
			words += ", because it allows much more on every node"
		}

		return words + "; an administrator can grant it alone:\n" + r.alone()
	}

	words := fmt.Sprintf("evenkeel's role %s includes this permission; an administrator can grant it:", name)
	if !slices.Contains(needed, name) {
		needed = append([]string{name}, needed...)
	}
	if len(needed) > 1 {
		words = fmt.Sprintf("this command needs evenkeel's roles %s; an administrator can grant them:", strings.Join(needed, " and "))
	}

	reads := slices.Contains([]string{"get", "list", "watch"}, r.verb)
	writes := false
	for _, role := range roles() {
		if !slices.Contains(needed, role.Name) {
			continue
		}

		words += "\n" + role.bind(r.user)
		writes = writes || slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.ContainsFunc(rule.Verbs, func(v string) bool { return v != "get" && v != "list" && v != "watch" })
		})
	}

	if reads && writes && len(needed) == 1 {
		words += "\nthis role also allows changes; to grant only this permission:\n" + r.alone()
	}

	return words
}

// role returns the name of the least powerful role of evenkeel that includes
// the permission, one of the needed ones if possible; empty if none does.
func (r right) role(needed []string) (name string) {
	for _, role := range roles() {
		if (role.Namespace == "" || role.Namespace == r.namespace) && slices.ContainsFunc(role.Rules, r.in) {
			if slices.Contains(needed, role.Name) {
				return role.Name
			}

			name = cmp.Or(name, role.Name)
		}
	}

	return name
}

func (r right) in(rule rbacv1.PolicyRule) bool {
	return slices.Contains(rule.Verbs, r.verb) && slices.Contains(rule.APIGroups, r.group) && slices.Contains(rule.Resources, r.resource) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.name))
}

// alone returns the commands that grant this permission and nothing else.
func (r right) alone() string {
	resource, sub, _ := strings.Cut(r.resource, "/")
	if r.group != "" {
		resource += "." + r.group
	}
	if sub != "" {
		resource += "/" + sub
	}

	alone := role{Kind: "ClusterRole"}
	alone.Name, alone.Namespace = strings.NewReplacer("/", "-", ".", "-").Replace("evenkeel-"+r.verb+"-"+r.resource), r.namespace
	if r.namespace != "" {
		alone.Kind = "Role"
	}

	return fmt.Sprintf("kubectl create %s %s%s --verb=%s --resource=%s\n%s", strings.ToLower(alone.Kind), alone.Name, alone.in(), r.verb,
		resource, alone.bind(r.user))
}

// role is a ClusterRole, or the Role of a namespace.
type role struct {
	Kind              string `json:"kind"`
	metav1.ObjectMeta `json:"metadata"`
	Rules             []rbacv1.PolicyRule `json:"rules"`
}

// in returns the words of a command that choose the role's namespace.
func (r role) in() string {
	if r.Namespace == "" {
		return ""
	}

	return " -n " + printable.Shell(r.Namespace)
}

// bind returns the command that binds the role to a user. All characters but /
// and % are allowed in the name of a binding.
func (r role) bind(user string) string {
	kind, name := strings.ToLower(r.Kind), strings.NewReplacer("/", "-", "%", "-").Replace(r.Name+"-"+user)
	subject := "--user=" + printable.Shell(user)
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		subject = "--serviceaccount=" + printable.Shell(account)
	}

	return fmt.Sprintf("kubectl create %sbinding %s%s --%s=%s %s", kind, printable.Shell(name), r.in(), kind, r.Name, subject)
}

// roles returns evenkeel's roles for people, as the manifests say, the least
// powerful first.
var roles = sync.OnceValue(func() []role {
	var all []role
	for _, file := range []string{"api/people-rbac.yaml", "installer/people-rbac.yaml"} {
		text, err := fs.ReadFile(config.Roles, file)
		if err != nil {
			panic(err) // the files are part of the program
		}

		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var r role
			if err := yaml.Unmarshal([]byte(document), &r); err != nil {
				panic(fmt.Sprintf("%s: %v", file, err))
			}

			all = append(all, r)
		}
	}

	return all
})
