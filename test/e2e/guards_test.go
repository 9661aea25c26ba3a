package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// refused is ConfigOK for a configuration that a guard refuses.
func refused(cm *corev1.ConfigMap, guard, using, words string) want {
	cause := fmt.Sprintf("refused current (UID: %s): %s", cm.UID, words)
	return want{"False", guard, using, cause, cause}
}

// policyOf waits until a state file says that this policy wrote it.
func (n *node) policyOf(file, policy string) {
	n.t.Helper()
	n.Eventually(file+" is of policy "+policy, func(context.Context) error {
		raw, err := os.ReadFile(filepath.Join(n.Node.Dir(), "kubelet", file))
		if err == nil && !strings.Contains(string(raw), fmt.Sprintf(`"policyName":%q`, policy)) {
			err = errors.New(string(raw))
		}
		return err
	})
}
