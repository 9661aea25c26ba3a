// Package component is what evenkeel knows of the programs whose configuration it changes; today that is the kubelet.
// It reads a command line and writes a new one, asks the component's own binary what it makes of a configuration (the
// dry run), and reads what a running one tells about itself: version, health, /configz, state files. It must not know
// where a configuration comes from, which one is meant to run, or why; and it never starts a component for good.
//
// What is general to all components: Outcome, Verdict, Effective, Identity. The rest is the kubelet's.
package component
