// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bytes"
	"errors"
	"fmt"
	"os"
)

// KubeletPID returns the process ID of the agent's kubelet. Unlike a dry run,
// the kubelet has a kubeconfig.
func (a *Agent) KubeletPID() (int, error) {
	children, err := a.Children()
	if err != nil {
		return 0, err
	}

	found := 0
	for _, pid := range children {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || !bytes.Contains(line, []byte("\x00--kubeconfig=")) {
			continue
		}
		if found != 0 {
			return 0, fmt.Errorf("the agent runs two kubelets, %d and %d", found, pid)
		}

		found = pid
	}

	if found == 0 {
		return 0, errors.New("the agent runs no kubelet")
	}

	return found, nil
}
