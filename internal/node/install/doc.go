// Package install puts the agent in front of the kubelet of a node that systemd runs, and takes it away again.
//
// All that it changes is one drop-in file of the kubelet's unit. What is to be done is recorded before it is done, and
// tried where a reboot forgets it and systemd takes it away if the installer is killed. What does not come up healthy is
// taken back, so that the node has the kubelet that it had whatever happens: the drop-in is there and good, or it is not
// there.
//
// It must not know what an agent does with a kubelet, nor its flags: that is asked of the Host.
package install
