// Package component is what evenkeel knows of the programs whose configuration it judges and changes. Any Component can
// be asked, by its own binary or container image, what it makes of a configuration (the dry run). The kubelet, which the
// agent runs, is known better: the package reads its command line and writes a new one, judges a configuration on its
// node, and reads what a running one tells about itself: version, health, /configz, state files. It must not know where a
// configuration comes from, which one is meant to run, or why; and it never starts a component for good.
//
// What is general to all components: Component, Objections, Outcome, Verdict, Effective, Identity. The rest is the
// kubelet's.
package component
