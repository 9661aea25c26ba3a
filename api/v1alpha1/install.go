// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// InstallNamespace is the namespace of the installer's privileged pods. No other part of evenkeel is in it.
const InstallNamespace = "evenkeel-install"

// Names of the DaemonSets in InstallNamespace.
const (
	InstallerName   = "evenkeel-installer"
	UninstallerName = "evenkeel-uninstaller"
)

// The label and the annotations of a Node that control whether evenkeel's agent is installed on it or removed from it.
// `kubectl evenkeel install` and `uninstall` write them.
const (
	// LabelAgent is the label whose value schedules a pod of the installer or of the uninstaller on the node.
	LabelAgent = "evenkeel.dev/agent"
	// LabelStartProbe is the label of a pod in SystemNamespace that shows whether its node can start pods. Its value is the name of the
	// rollout, or assign.
	LabelStartProbe = "evenkeel.dev/start-probe"
	// AnnotationAgentFailed is the annotation with the reason of a failure, if LabelAgent is AgentInstallFailed or
	// AgentUninstallFailed.
	AnnotationAgentFailed = "evenkeel.dev/agent-failed"
	// AnnotationAgentTurn is the annotation with the revision of the installer (controller-revision-hash) that may change an
	// installed agent. Pods of other revisions wait, such as all pods of an installer that was deleted and recreated.
	AnnotationAgentTurn = "evenkeel.dev/agent-turn"
)

// Exit codes of a pod's evenkeel-agent install or uninstall, for which a retry does not help. kubectl evenkeel reads them from
// the pod's status.
const (
	InstallExitRolledBack = 2 // the change was rolled back
	InstallExitUsage      = 3 // the command line is wrong
	InstallExitNotOnHost  = 6 // the namespaces of the host cannot be entered
)

// Values of LabelAgent. The last two schedule no pod: a failed installation is retried only when a person asks for it.
const (
	AgentInstall         = "install"
	AgentUninstall       = "uninstall"
	AgentInstallFailed   = "install-failed"
	AgentUninstallFailed = "uninstall-failed"
)
