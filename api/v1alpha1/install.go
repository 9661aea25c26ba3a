package v1alpha1

// InstallNamespace is where the installer's pods are. They are privileged, and nothing else of evenkeel is there.
const InstallNamespace = "evenkeel-install"

// The DaemonSets in InstallNamespace.
const (
	InstallerName   = "evenkeel-installer"
	UninstallerName = "evenkeel-uninstaller"
)

// What says of a Node whether evenkeel's agent is put in front of its kubelet, or taken away. `kubectl evenkeel install` and
// `uninstall` write both.
const (
	// LabelAgent brings a pod of the installer or of the uninstaller to the node, by its value.
	LabelAgent = "evenkeel.dev/agent"
	// AnnotationAgentFailed is why it did not work, with the two values of LabelAgent that say so.
	AnnotationAgentFailed = "evenkeel.dev/agent-failed"
	// AnnotationAgentTurn is the revision of the installer (controller-revision-hash) that may change an agent which is there.
	// A pod of another one, such as all those of an installer that was deleted and made anew, waits.
	AnnotationAgentTurn = "evenkeel.dev/agent-turn"
)

// Values of LabelAgent. The last two bring no pod: what failed is tried again when a person says so, and not before.
const (
	AgentInstall         = "install"
	AgentUninstall       = "uninstall"
	AgentInstallFailed   = "install-failed"
	AgentUninstallFailed = "uninstall-failed"
)
