// This module stands in for sigs.k8s.io/iptables-wrappers, which the module proxy does not serve.
module sigs.k8s.io/iptables-wrappers

go 1.26.0
