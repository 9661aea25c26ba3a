// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import "fmt"

// Manifest returns a Role and a RoleBinding, in YAML, that let the node read this ConfigMap only.
func (m NodeConfigMap) Manifest() string {
	return fmt.Sprintf(manifest, "evenkeel-"+m.Name, m.Namespace, m.Name, "system:node:"+m.Node)
}

// manifest takes the name of both objects, their namespace, the ConfigMap, and the user of the node. All are quoted,
// because YAML would read some names as numbers.
const manifest = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: %[1]q
  namespace: %[2]q
  labels:
    app.kubernetes.io/part-of: evenkeel
rules:
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [%[3]q]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: %[1]q
  namespace: %[2]q
  labels:
    app.kubernetes.io/part-of: evenkeel
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: %[1]q
subjects:
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: %[4]q
`
