# Everything a contributor runs. `make help` says what each target is for.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-unknown)
KUBE_VERSION := $(shell awk '$$1 == "require" && $$2 == "k8s.io/kubernetes" {print $$3} $$1 == "k8s.io/kubernetes" {print $$2}' tools/go.mod | head -1)
TOOLS := bin/tools
CMDS := $(notdir $(wildcard cmd/*))
# What needs root: nothing to prefix for root itself; through sudo, Go gets a
# build cache of its own, so that the user's stays the user's.
SUDO := $(if $(filter-out 0,$(shell id -u)),$(shell command -v sudo))
AS_ROOT := $(if $(SUDO),$(SUDO) env PATH="$$PATH" CGO_ENABLED=0 GOMODCACHE="$$(go env GOMODCACHE)" GOCACHE=$(CURDIR)/bin/root-cache)

export CGO_ENABLED := 0

.PHONY: help build tools image deps demo test bench bench-fleet lint generate clean

help: ## say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build evenkeel's programs into bin/
	@for cmd in $(CMDS); do \
	  go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/$$cmd ./cmd/$$cmd; echo "built bin/$$cmd"; \
	done

tools: $(TOOLS)/.built ## build the pinned upstream programs into bin/tools/ (once; some minutes)

K8S_VERSION_PKG := k8s.io/component-base/version
K8S_LDFLAGS := -s -w -X $(K8S_VERSION_PKG).gitVersion=$(KUBE_VERSION) \
  -X $(K8S_VERSION_PKG).gitMajor=$(word 1,$(subst ., ,$(KUBE_VERSION:v%=%))) \
  -X $(K8S_VERSION_PKG).gitMinor=$(word 2,$(subst ., ,$(KUBE_VERSION))) \
  -X $(K8S_VERSION_PKG).gitTreeState=clean -X $(K8S_VERSION_PKG).gitCommit=unknown

$(TOOLS)/.built: tools/go.mod tools/go.sum
	@mkdir -p $(TOOLS)
	@for pkg in $$(sed -n '/^tool (/,/^)/s/^\t//p' tools/go.mod); do \
	  name=$$(basename "$$pkg"); [ "$$name" != v3 ] || name=etcd; \
	  echo "building $$name"; \
	  (cd tools && go build -trimpath -ldflags "$(K8S_LDFLAGS)" -o ../$(TOOLS)/$$name "$$pkg"); \
	done
	@touch $@

# The images: the tag of each, and the programs in it, of which the first is what it runs. `make image` needs no Docker.
REGISTRY ?= evenkeel.dev
IMAGES := kubelet
kubelet_TAG ?= $(KUBE_VERSION)
kubelet_PROGRAMS := bin/evenkeel-agent $(TOOLS)/kubelet

image: build tools ## make dist/evenkeel-kubelet-*.tar: agent and kubelet for a self-hosted kubelet (REGISTRY=..., kubelet_TAG=...)
	@$(foreach image,$(IMAGES),go run ./internal/image/build -label org.opencontainers.image.version=$($(image)_TAG) \
	  -label dev.evenkeel.version=$(VERSION) $(REGISTRY)/$(image):$($(image)_TAG) $($(image)_PROGRAMS);)

# A real node needs containerd and friends, and the page is tried in a browser; with root they are installed when missing.
DEPS := containerd:containerd runc:runc iptables:iptables /usr/lib/cni/bridge:containernetworking-plugins systemd-analyze:systemd chromium:chromium
deps:
	@missing=(); for d in $(DEPS); do \
	  bin=$${d%%:*}; PATH=$$PATH:/usr/sbin:/sbin command -v "$$bin" >/dev/null || missing+=("$${d#*:}"); done; \
	if [ $${#missing[@]} -gt 0 ]; then \
	  if [ "$$(id -u)" != 0 ] && [ -z "$(SUDO)" ] || ! command -v apt-get >/dev/null; then \
	    echo "cannot install $${missing[*]} (no root, or no apt-get): what needs a real node, or a browser, will be skipped"; exit 0; fi; \
	  echo "installing $${missing[*]}"; \
	  $(SUDO) apt-get update -qq >/dev/null || true; \
	  DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends "$${missing[@]}" >/dev/null || \
	    echo "could not install $${missing[*]}: what needs a real node, or a browser, will be skipped"; \
	fi

demo: tools deps build ## show a node and a fleet being changed, broken and rolled back (KEEP=1 keeps the node running)
	@go build -o bin/demo ./test/demo
	@exec $(SUDO) bin/demo $(if $(KEEP),-keep)

test: tools deps build ## set everything up and pass every test
	@if [ "$$(id -u)" != 0 ] && [ -z "$(SUDO)" ]; then \
	  echo "SKIPPED, for lack of root: every test that needs a real node"; fi
	@go vet ./...
	@$(AS_ROOT) go test -timeout 45m -p 1 ./...

bench: tools deps build ## measure speed and size, each beside its floor
	@$(AS_ROOT) go run ./test/bench

NODES ?= 5000
bench-fleet: tools build ## measure the controller with NODES hollow nodes (5000; half an hour), and fail over its limits
	@go run ./test/benchfleet -nodes=$(NODES)

lint: tools ## gofmt, go vet, staticcheck
	@test -z "$$(gofmt -l $$(git ls-files '*.go') | tee /dev/stderr)"
	go vet ./...
	$(TOOLS)/staticcheck ./...

generate: tools ## generate CRDs and deep copies from the API types
	$(TOOLS)/controller-gen object paths=./api/... crd paths=./api/... output:crd:dir=config/api/crd

clean: ## remove what was built (the Go caches stay)
	$(AS_ROOT) rm -rf bin dist
