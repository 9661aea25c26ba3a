# Build, test and release targets. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-unknown)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
# The Kubernetes version that a module of tools/ pins.
kube_version = $(shell sed -n 's|^require k8s.io/kubernetes \(v[^ ]*\).*|\1|p' $(1))
KUBE_VERSION := $(call kube_version,tools/go.mod)
TOOLS := bin/tools
CMDS := $(notdir $(wildcard cmd/*))
# Prefixes for commands that need root; empty for root itself. With sudo, Go gets a separate build cache, so that root owns no
# files in the user's cache.
SUDO := $(if $(filter-out 0,$(shell id -u)),$(shell command -v sudo))
AS_ROOT := $(if $(SUDO),$(SUDO) env PATH="$$PATH" CGO_ENABLED=0 GOFLAGS="$$GOFLAGS" GOMODCACHE="$$(go env GOMODCACHE)" GOCACHE=$(CURDIR)/bin/root-cache)

export CGO_ENABLED := 0
# All builds have the flag that releases need, so that they share the packages that they compile.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

.PHONY: help build tools kubelets programs cli-programs image install.yaml push release deps demo check test test-all shards matrix podguard dryrun e2e bench bench-restart bench-page bench-fleet pictures recording docs-site soak vm mutants lint generate clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The commit is set with -X, and not by Go (-buildvcs), so that the same source gives the same bytes, with or without a git
# repository. Without grpcnotrace, gRPC's traces contain html/template, which makes the linker keep every exported method of every type:
# 4.6 MB more, nearly all of which are resident.
BUILD_FLAGS = -trimpath -buildvcs=false -tags grpcnotrace -ldflags "-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)"

build: ## build the programs of evenkeel into bin/
	@$(PROGRESS) "building $(addprefix bin/,$(CMDS) evenkeel-hollow)" go build -v $(BUILD_FLAGS) -o bin/ $(addprefix ./cmd/,$(CMDS)) ./hack/evenkeel-hollow

# $(call k8s_build,VERSION,MODULE,OUTPUT,PACKAGES) builds programs of a module that pins this Kubernetes version, with the Go of its
# line "toolchain", if it has one.
K8S_VERSION_PKG := k8s.io/component-base/version
k8s_build = $(shell sed -n 's/^toolchain /env GOTOOLCHAIN=/p' $(2)/go.mod) go -C $(2) build -v -o $(CURDIR)/$(3) \
  -ldflags "-s -w -X $(K8S_VERSION_PKG).gitVersion=$(1) \
  -X $(K8S_VERSION_PKG).gitMajor=$(word 1,$(subst ., ,$(1:v%=%))) -X $(K8S_VERSION_PKG).gitMinor=$(word 2,$(subst ., ,$(1))) \
  -X $(K8S_VERSION_PKG).gitTreeState=clean -X $(K8S_VERSION_PKG).gitCommit=unknown" $(4)
PROGRESS := hack/progress

# The pinned upstream programs. CORE is what the demo and most tests run. One command builds all programs of a module that a target
# needs, so that one program is linked while others are compiled.
CORE := etcd kube-apiserver kubelet kubectl
MORE := kubeadm kube-proxy kube-scheduler kube-controller-manager
programs_of = $(addprefix $(TOOLS)/,$(1))
core := $(call programs_of,$(CORE))
tools: $(core) $(call programs_of,$(MORE) controller-gen crd-ref-docs) ## build the pinned upstream programs into bin/tools/ (once; takes minutes)

$(core) &: tools/go.mod tools/go.sum
	@mkdir -p $(TOOLS)
	@$(PROGRESS) "building etcd, and kube-apiserver, kubelet and kubectl of Kubernetes $(KUBE_VERSION): takes minutes, once" \
	  $(call k8s_build,$(KUBE_VERSION),tools,$(TOOLS)/,go.etcd.io/etcd/server/v3 $(addprefix k8s.io/kubernetes/cmd/,$(filter-out etcd,$(CORE))))
	@mv $(TOOLS)/server $(TOOLS)/etcd # Go names it after its directory
	@touch $(core)

$(call programs_of,$(MORE)) &: tools/go.mod tools/go.sum
	@mkdir -p $(TOOLS)
	@$(PROGRESS) "building $(MORE) $(KUBE_VERSION)" \
	  $(call k8s_build,$(KUBE_VERSION),tools,$(TOOLS)/,$(addprefix k8s.io/kubernetes/cmd/,$(MORE)))
	@touch $(call programs_of,$(MORE))

$(TOOLS)/controller-gen: tools/go.mod tools/go.sum
	@echo "building controller-gen"
	@go -C tools build -o $(CURDIR)/$@ sigs.k8s.io/controller-tools/cmd/controller-gen
	@touch $@

$(TOOLS)/golangci-lint $(TOOLS)/govulncheck: tools/lint/go.mod tools/lint/go.sum
	@$(PROGRESS) "building $(@F)" go -C tools/lint build -v -o $(CURDIR)/$@ $$(sed -n '/^tool (/,/^)/s|^\t\(.*/$(@F).*\)$$|\1|p' tools/lint/go.mod)

$(TOOLS)/actionlint: tools/actionlint/go.mod tools/actionlint/go.sum
	@echo "building $(@F)"
	@go -C tools/actionlint build -o $(CURDIR)/$@ github.com/rhysd/actionlint/cmd/actionlint

$(TOOLS)/crd-ref-docs: tools/docs/go.mod tools/docs/go.sum
	@echo "building crd-ref-docs"
	@go -C tools/docs build -o $(CURDIR)/$@ github.com/elastic/crd-ref-docs

$(TOOLS)/object-health: $(wildcard tools/gitops/*)
	@echo "building object-health"
	@go -C tools/gitops build -o $(CURDIR)/$@ .

# The programs that the modules of tools/kubelets and tools/apiservers pin, such as bin/tools/kubelets/v1.33.13/kubelet, oldest
# first.
older_of = $(TOOLS)/$(notdir $(patsubst %/,%,$(dir $(1))))/$(call kube_version,$(1)/go.mod)/$(2)
define older_rule
$(call older_of,$(1),$(2)): $(1)/go.mod $(1)/go.sum
	@mkdir -p $$(@D)
	@$(PROGRESS) "building $(2) $(call kube_version,$(1)/go.mod)" $(call k8s_build,$(call kube_version,$(1)/go.mod),$(1),$$@,k8s.io/kubernetes/cmd/$(2))
endef
KUBELET_MODULES := $(sort $(wildcard tools/kubelets/*))
APISERVER_MODULES := $(sort $(wildcard tools/apiservers/*))
$(foreach module,$(KUBELET_MODULES) $(APISERVER_MODULES),$(if $(call kube_version,$(module)/go.mod),,$(error \
  $(module)/go.mod has no line "require k8s.io/kubernetes VERSION" of its own)))
$(foreach module,$(KUBELET_MODULES),$(eval $(call older_rule,$(module),kubelet)))
$(foreach module,$(APISERVER_MODULES),$(eval $(call older_rule,$(module),kube-apiserver)))
KUBELETS := $(foreach module,$(KUBELET_MODULES),$(call older_of,$(module),kubelet))
APISERVERS := $(foreach module,$(APISERVER_MODULES),$(call older_of,$(module),kube-apiserver))
OLDEST_KUBELET := $(firstword $(KUBELETS))

# The programs of a cluster of kubeadm before and after an upgrade, with the etcd and the CoreDNS that each kubeadm wants.
KUBEADM_FROM := $(patsubst %/kubelet,%,$(call older_of,tools/kubelets/v1.36,kubelet))
KUBEADM_TO := $(TOOLS)
kubeadm_from := $(addprefix $(KUBEADM_FROM)/,$(filter-out etcd kubelet,$(CORE)) $(MORE))
$(kubeadm_from) &: tools/kubelets/v1.36/go.mod tools/kubelets/v1.36/go.sum
	@mkdir -p $(KUBEADM_FROM)
	@$(PROGRESS) "building the programs of Kubernetes $(notdir $(KUBEADM_FROM)): takes minutes, once" $(call k8s_build,$(notdir \
	  $(KUBEADM_FROM)),tools/kubelets/v1.36,$(KUBEADM_FROM)/,$(addprefix k8s.io/kubernetes/cmd/,$(notdir $(kubeadm_from))))
	@touch $(kubeadm_from)
# $(call single_rule,FILE,MODULE,PACKAGE) builds one program of a module.
define single_rule
$(1): $(2)/go.mod $(2)/go.sum
	@mkdir -p $$(@D)
	@$(PROGRESS) "building $$@" go -C $(2) build -v -ldflags "-s -w" -o $(CURDIR)/$$@ $(3)
endef
$(eval $(call single_rule,$(KUBEADM_FROM)/etcd,tools/etcd/v3.6,go.etcd.io/etcd/server/v3))
$(eval $(call single_rule,$(KUBEADM_FROM)/coredns,tools/coredns/v1.14.2,github.com/coredns/coredns))
$(eval $(call single_rule,$(KUBEADM_TO)/coredns,tools/coredns/v1.14.6,github.com/coredns/coredns))
kubeadm_clusters := $(kubeadm_from) $(addprefix $(KUBEADM_FROM)/,kubelet etcd coredns) $(KUBEADM_TO)/coredns

kubelets: $(KUBELETS) ## build the older kubelets, and a preview of the next, for the tests (once; takes minutes for each)

# The platforms of a release: all programs for those of nodes, the kubectl plugin also for those of workstations.
PLATFORMS ?= linux/amd64 linux/arm64
CLI_PLATFORMS ?= darwin/amd64 darwin/arm64 windows/amd64
PROGRAMS := bin/programs
# Overrides environment variables that would change released programs.
UNMOVED := GOFLAGS= GOEXPERIMENT= GOAMD64=v1 GOARM64=v8.0 GOFIPS140=off
# $(call compile,OS/ARCH,NAMES) builds programs into bin/programs/OS_ARCH/.
compile = mkdir -p $(PROGRAMS)/$(subst /,_,$(1)); GOOS=$(firstword $(subst /, ,$(1))) GOARCH=$(lastword $(subst /, ,$(1))) \
  $(UNMOVED) go build $(BUILD_FLAGS) -o $(PROGRAMS)/$(subst /,_,$(1))/ $(addprefix ./cmd/,$(2));

programs:
	@$(foreach platform,$(PLATFORMS),$(call compile,$(platform),$(CMDS)))

cli-programs:
	@$(foreach platform,$(CLI_PLATFORMS),$(call compile,$(platform),kubectl-evenkeel))

# The images: the tag of each, and its programs, of which it runs the first. `make image` needs no Docker. An image has all
# architectures for which its programs are given. The kubelet is built for this machine only; for another architecture, run
#   make image kubelet_PROGRAMS="bin/programs/linux_arm64/evenkeel-agent PATH/TO/kubelet"
REGISTRY ?= evenkeel.dev
DIST ?= dist
IMAGES ?= agent controller kubelet
of_platforms = $(foreach platform,$(filter linux/%,$(PLATFORMS)),$(PROGRAMS)/$(subst /,_,$(platform))/$(1))
agent_TAG ?= $(VERSION)
agent_PROGRAMS ?= $(call of_platforms,evenkeel-agent)
agent_IS := Puts evenkeel-agent in front of a node's kubelet
controller_TAG ?= $(VERSION)
controller_PROGRAMS ?= $(call of_platforms,evenkeel-controller)
controller_IS := Rolls kubelet configurations out over a fleet
controller_USER := 65532:65532
kubelet_TAG ?= $(KUBE_VERSION)
kubelet_PROGRAMS ?= bin/evenkeel-agent $(TOOLS)/kubelet
kubelet_IS := A self-hosted kubelet under evenkeel-agent
OCI := org.opencontainers.image

in_images := $(foreach image,$(IMAGES),$($(image)_PROGRAMS))
image: $(if $(filter $(PROGRAMS)/%,$(in_images)),programs) $(if $(filter $(TOOLS)/%,$(in_images)),build tools) ## build the images as OCI archives dist/evenkeel-*.tar (IMAGES=..., REGISTRY=..., kubelet_TAG=...)
	@$(foreach image,$(IMAGES),$(UNMOVED) go run ./build/image/pack -dir $(DIST) -user "$($(image)_USER)" \
	  -label $(OCI).title=evenkeel-$(image) -label "$(OCI).description=$($(image)_IS)" -label $(OCI).version=$($(image)_TAG) \
	  -label $(OCI).revision=$(COMMIT) -label $(OCI).source=https://github.com/evenkeel/evenkeel -label $(OCI).licenses=Apache-2.0 \
	  -label dev.evenkeel.version=$(VERSION) $(REGISTRY)/$(image):$($(image)_TAG) $($(image)_PROGRAMS);)

# The tag of the images of a clone: `kubectl evenkeel install` compares a tag that is a version with what the agents report.
CLONE_VERSION = $(if $(filter v%,$(VERSION)),$(VERSION),v0.0.0-$(VERSION))
install.yaml: ## build the plugin, the images of this clone for this machine's architecture, and install.yaml, which names them (REGISTRY=...)
	@rm -rf dist/install
	@$(MAKE) --no-print-directory build image VERSION=$(CLONE_VERSION) IMAGES="agent controller" DIST=dist/install \
	  agent_PROGRAMS=bin/evenkeel-agent controller_PROGRAMS=bin/evenkeel-controller
	@PATH="$$PATH:$(TOOLS)" kubectl kustomize config/base >$@.new
	@sed 's#evenkeel.dev/\(agent\|controller\):latest#$(REGISTRY)/\1:$(CLONE_VERSION)#' $@.new >$@ && rm $@.new

PUSH ?= skopeo copy
push: ## make install.yaml, and push its images to REGISTRY
	@[ "$(REGISTRY)" != evenkeel.dev ] || { echo "make push: name your registry: make push REGISTRY=registry.example.com/evenkeel" >&2; exit 2; }
	@$(MAKE) --no-print-directory install.yaml
	@for i in agent controller; do $(PUSH) oci-archive:$$(echo dist/install/evenkeel-$$i-*.tar) docker://$(REGISTRY)/$$i:$(CLONE_VERSION); done

# The URL of the directory from which users get the files of the release: in the Krew manifest.
DOWNLOADS ?= https://github.com/evenkeel/evenkeel/releases/download/$(VERSION)
# The file with the private key for the signatures. Without it the release has none.
COSIGN_KEY ?=
# All times in released files are the time of the commit.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null)
release: ## build all files of a release into dist/VERSION, for the tag that is checked out or VERSION=v1.2.3
	@$(UNMOVED) go build -C build/release -trimpath -o $(CURDIR)/bin/make-release .
	@bin/make-release -check -version="$(VERSION)" -time=$(or $(SOURCE_DATE_EPOCH),0) -commit="$(COMMIT)" -key="$(COSIGN_KEY)" -tagged=$(if $(filter file,$(origin VERSION)),true,false)
	@rm -rf $(PROGRAMS) dist/$(VERSION)
	@$(MAKE) --no-print-directory cli-programs image VERSION=$(VERSION) DIST=dist/$(VERSION) IMAGES="agent controller"
	@bin/make-release -version="$(VERSION)" -registry=$(REGISTRY) -programs=$(PROGRAMS) -out=dist/$(VERSION) -time=$(SOURCE_DATE_EPOCH) \
	  -commit="$(COMMIT)" -downloads="$(DOWNLOADS)" -key="$(COSIGN_KEY)"
	@echo "made dist/$(VERSION): see SHA256SUMS there"

# A real node needs containerd, runc, iptables and CNI plugins. Tests of units, packages and the dashboard need more. With
# root, missing packages are installed.
DEPS := containerd:containerd runc:runc iptables:iptables /usr/lib/cni/bridge:containernetworking-plugins
e2e components docs shards test-all matrix: DEPS += openssl:openssl systemd-analyze:systemd dbus-daemon:dbus busctl:systemd
page docs shards test-all bench-page: DEPS += chromium:chromium npm:npm
release-test shards test-all: DEPS += openssl:openssl systemd-analyze:systemd rpm:rpm
deps:
	@missing=(); for d in $(DEPS); do \
	  bin=$${d%%:*}; PATH=$$PATH:/usr/sbin:/sbin command -v "$$bin" >/dev/null || missing+=("$${d#*:}"); done; \
	if [ $${#missing[@]} -gt 0 ]; then \
	  if [ "$$(id -u)" != 0 ] && [ -z "$(SUDO)" ] || ! command -v apt-get >/dev/null; then \
	    echo "cannot install $${missing[*]} (no root, or no apt-get): tests that need a real node or a browser will be skipped"; exit 0; fi; \
	  $(PROGRESS) "reading Debian's package lists" $(SUDO) apt-get update -qq || true; \
	  DEBIAN_FRONTEND=noninteractive $(PROGRESS) "installing $${missing[*]}" $(SUDO) apt-get install -y -qq --no-install-recommends "$${missing[@]}" || \
	    echo "could not install $${missing[*]}: tests that need a real node or a browser will be skipped"; \
	fi

# From npm: what the tests of the dashboard load into the page, what lints Markdown, and what builds the website. Nothing is released.
AXE := bin/page/node_modules/axe-core/axe.min.js
MARKDOWNLINT := bin/markdown/node_modules/.bin/markdownlint-cli2
VITEPRESS := bin/site/node_modules/.bin/vitepress
$(AXE): tools/page/package.json tools/page/package-lock.json
$(MARKDOWNLINT): tools/markdown/package.json tools/markdown/package-lock.json
$(VITEPRESS): tools/site/package.json tools/site/package-lock.json
$(AXE) $(MARKDOWNLINT) $(VITEPRESS): | deps
	@dir=$(firstword $(subst /node_modules/, ,$@)); mkdir -p $$dir && cp $^ $$dir/; \
	if command -v npm >/dev/null && (cd $$dir && npm ci --ignore-scripts --no-audit --no-fund --silent); then touch $@; \
	else echo "cannot get $(@F): what needs it will be skipped"; fi

# The tests of the alerts need the programs of Prometheus. The package is only unpacked, because its installation would start
# a server.
PROMETHEUS := bin/prometheus
.PHONY: prometheus
prometheus:
	@if command -v promtool >/dev/null && command -v prometheus >/dev/null || [ -x $(PROMETHEUS)/promtool ]; then exit 0; fi; \
	rm -rf $(PROMETHEUS).new; mkdir -p $(PROMETHEUS).new; cd $(PROMETHEUS).new; echo "unpacking prometheus"; \
	if { apt-get download -qq prometheus || { $(SUDO) apt-get update -qq && apt-get download -qq prometheus; }; } >/dev/null 2>&1 && \
	  dpkg-deb -x prometheus_*.deb . && mv usr/bin/prometheus usr/bin/promtool . && rm -rf usr etc lib var *.deb; then \
	  cd $(CURDIR) && mv $(PROMETHEUS).new $(PROMETHEUS); \
	else cd $(CURDIR) && rm -rf $(PROMETHEUS).new; echo "cannot get prometheus: tests of alerts will be skipped"; fi

demo: $(core) deps build ## show how a node and a fleet are changed, broken and rolled back (KEEP=1 keeps everything running)
	@$(PROGRESS) "building the demo" go build -v -o bin/demo ./hack/demo
	@exec $(SUDO) bin/demo $(if $(KEEP),-keep)

# The tests, by what they need. Each package is in one of these lists, or `make check` alone tests it. With -short, tests that need
# programs of Kubernetes or root are skipped; the shard that names their package runs them.
#
# SERVER: what `make test` adds to `make check`: one API server, and a real kubelet for ./test/promises.
SERVER := ./test/promises ./test/api ./hack/evenkeel-hollow ./cmd/kubectl-evenkeel ./cmd/evenkeel-controller \
  ./internal/controller ./internal/node/source ./testkit/hollow
# LONG: packages with random histories, of which `make check` plays a few.
LONG := ./internal/node/trial
# The shards of `make test-all`, with their packages.
SHARDS := e2e fleet page components docs release-test
e2e_PACKAGES := ./test/e2e
fleet_PACKAGES := ./test/fleet ./test/simulation
page_PACKAGES := ./test/dashboard
components_PACKAGES := ./cmd/evenkeel-agent ./hack/demo ./internal/cli/config ./internal/component ./internal/operator/doctor ./internal/operator/kubeadm \
  ./internal/node/podguard ./internal/node/agent ./internal/node/handover ./internal/node/hostns ./internal/node/install \
  ./internal/node/lockfile ./test/podguard ./testkit/localcluster/...
docs_PACKAGES := ./api/v1alpha1 ./test/docs ./test/examples
release-test_PACKAGES := ./build/chart ./build/image/... ./build/rules ./internal/controller/gate ./test/release
# Tests of SERVER that need more than CORE; the shard components runs them.
MORE_TESTS := ^(TestCommandLineForComponents|TestTheSelfHostedKubeletRunsOnlyOnBootstrapNodes)$$
MORE_TEST_PACKAGES := ./cmd/kubectl-evenkeel ./test/api
# What they need besides CORE.
e2e_NEEDS := $(OLDEST_KUBELET) $(call programs_of,$(MORE))
fleet_NEEDS := $(TOOLS)/object-health prometheus
page_NEEDS := $(AXE)
components_NEEDS := $(OLDEST_KUBELET) $(call programs_of,$(MORE))
docs_NEEDS := tools $(AXE)
release-test_NEEDS := prometheus
# Packages that are tested with servers only.
HEAVY := $(SERVER) $(filter-out ./internal/controller/gate,$(foreach shard,e2e fleet page docs release-test,$($(shard)_PACKAGES))) \
  ./internal/operator/kubeadm ./test/podguard ./testkit/localcluster
# $(call go_test,PACKAGES) tests packages with control planes that they share, as root.
go_test = @if [ "$$(id -u)" != 0 ] && [ -z "$(SUDO)" ]; then echo "SKIPPED without root: all tests that need a real node"; fi; \
  go build -o bin/testpool ./hack/testpool && $(AS_ROOT) env SIMULATION_SUMMARY=$(CURDIR)/bin/simulation bin/testpool go test -vet=off -timeout 60m -p 2 $(1)

# What make check lints: the directories with changes since LINT_BASE, or everything if there is no such commit, or if the rules or
# the dependencies have changed. A few cheap rules run for everything.
LINT_BASE ?= $(shell git merge-base HEAD origin/main 2>/dev/null || git rev-parse --verify -q HEAD~1)
changed_files = { git diff --name-only $(LINT_BASE); git ls-files --others --exclude-standard; } | sort -u
check: $(TOOLS)/golangci-lint ## lint what changed, and run the tests that need no server and no root (two minutes)
	@unformatted=$$(gofmt -l api build cmd config hack internal test testkit tools); [ -z "$$unformatted" ] || { echo "not formatted, run gofmt -w:" $$unformatted >&2; exit 1; }
	@dirs=./...; changed=$$($(if $(LINT_BASE),$(changed_files),echo go.mod)); \
	if ! grep -qxE '\.golangci\.yaml|go\.(mod|sum)' <<<"$$changed"; then \
	  dirs=$$(grep '\.go$$' <<<"$$changed" | grep -vE '^(build/release|tools)/|/testdata/' | xargs -r dirname | sort -u | \
	    while read -r d; do ! compgen -G "$$d/*.go" >/dev/null || echo "./$$d"; done || true); fi; \
	$(TOOLS)/golangci-lint run --enable-only depguard,godoclint,revive ./...; \
	[ -z "$$dirs" ] || $(TOOLS)/golangci-lint run $$dirs
	@go test -short -vet=off $$(go list ./... | grep -vxF "$$(go list $(HEAVY))") | grep -v 'no test files'

test: check $(core) deps build ## make check, and every promise of the README with a real API server and kubelet: ten minutes
	$(call go_test,-skip '$(MORE_TESTS)' $(SERVER) $(LONG))

test-all: ## make test and everything else: lint, and all shards
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory shards

shards: $(foreach shard,$(SHARDS),$($(shard)_NEEDS)) $(core) deps build ## run all shards in one go
	$(call go_test,$(foreach shard,$(SHARDS),$($(shard)_PACKAGES)))
	$(call go_test,-run '$(MORE_TESTS)' $(MORE_TEST_PACKAGES))
	@if [ -f bin/simulation ]; then cat bin/simulation; fi

fleet: ## shard: rollouts with real controllers and hollow nodes, random histories of whole clusters
page: ## shard: the dashboard in a browser
components: ## shard: dry runs, the node's lock, systemd and pods with real kubelets, oldest and newest
docs: ## shard: every command of README and docs/, and generated files
release-test: ## shard: packages, images, chart and alert rules
.PHONY: $(SHARDS)
$(foreach shard,$(SHARDS),$(eval $(shard): $($(shard)_NEEDS)))
$(filter-out e2e,$(SHARDS)): $(core) deps build
	$(call go_test,$($@_PACKAGES))
	$(if $(filter components,$@),$(call go_test,-run '$(MORE_TESTS)' $(MORE_TEST_PACKAGES)))

# Run it before a change of the behaviour on nodes is merged: see docs/kubelets.md.
matrix: tools $(KUBELETS) $(APISERVERS) deps build ## run the core of the end-to-end tests with all kubelets but the newest and the oldest, and the oldest API server
	@$(AS_ROOT) go test -timeout 60m -count=1 -v ./test/e2e -run '^TestOlderVersionsPassTheCoreOfThisSuite$$' -matrix

# KUBELET is a path, or a version that a module of tools/kubelets pins.
KUBELET ?= $(TOOLS)/kubelet
KUBELET_PATH = $(if $(findstring /,$(KUBELET)),$(abspath $(KUBELET)),$(CURDIR)/$(TOOLS)/kubelets/$(KUBELET)/kubelet)
e2e: $(core) $(filter %/$(KUBELET)/kubelet,$(KUBELETS)) deps build ## shard: whole nodes with one kubelet (KUBELET=v1.33.13 or a path; default: the newest)
	$(call go_test,-count=1 $(e2e_PACKAGES) -kubelet=$(KUBELET_PATH))

bench: tools deps build ## measure speed and size, each beside its floor from the same run
	@$(AS_ROOT) go run ./hack/bench

# With VERSIONS=v1.36.3, only that kubelet is measured. ROUNDS repeats each restart; a round takes two and a half minutes for each
# kubelet, and from 1.35 on as many with the gate.
PODS ?= 60
ROUNDS ?= 1
bench-restart: tools $(KUBELETS) deps build ## measure what a restart of each kubelet costs PODS probed pods (default: 60; takes half an hour)
	@$(AS_ROOT) go run ./hack/bench -only=restart -kubelets=$(VERSIONS) -pods=$(PODS) -rounds=$(ROUNDS)

# Seeds SEED to SEED+PAIRS-1. With VERSIONS=v1.36.3, only that kubelet runs, for instance to repeat one pair.
PAIRS ?= 200
SEED ?= 1
VERSIONS ?= all
podguard: tools $(KUBELETS) deps ## compare the predicted losses of PAIRS random restarts (default: 200) with those of all kubelets
	@$(AS_ROOT) go test -timeout 90m -count=1 -parallel 8 -v ./test/podguard -kubelets=$(VERSIONS) -seed=$(SEED) -pairs=$(PAIRS)

CONFIGS ?= 2000
dryrun: tools $(KUBELETS) deps ## compare the dry runs of CONFIGS random configurations (default: 2000) with started kubelets (takes an hour)
	@$(AS_ROOT) go test -timeout 180m -count=1 -v ./test/podguard -run TestTheDryRunAgrees -kubelets=$(VERSIONS) -seed=$(SEED) -configs=$(CONFIGS)

NODES ?= 5000
bench-page: tools deps build ## measure the dashboard with NODES nodes (default: 5000) and 30 changes per second (takes 3 minutes); no limit fails it
	@go test ./test/dashboard -count=1 -v -run '^TestThousandsOfNodesAreShownAndFollowed$$' -figures -nodes=$(NODES)

pictures: $(page_NEEDS) $(core) deps build ## take the pictures of the dashboard in docs/images from the present page (takes minutes); look at each
	$(call go_test,./test/dashboard -count=1 -run 'StatesOfThePage|ThousandsOfNodes' -pictures=$(CURDIR)/docs/images)
	@go test ./internal/operator/dashboard -count=1 -run ThePicturesInTheDocumentation -pictured

recording: ## write the recording of a terminal in docs/images again, from the present command; look at it
	@go run ./hack/recording

docs-site: DEPS := chromium:chromium npm:npm
docs-site: $(VITEPRESS) ## build the website of docs/ into dist/site, and follow its links in a browser (a minute)
	@rm -rf bin/site/docs bin/site/.vitepress dist/site; mkdir -p bin/site/.vitepress dist; cp -r docs bin/site/; cp tools/site/config.mjs bin/site/.vitepress/
	@$(PROGRESS) "building the website" $(VITEPRESS) build bin/site
	@mv bin/site/.vitepress/dist dist/site
	@go test ./test/site -count=1 -site=$(CURDIR)/dist/site

bench-fleet: tools build ## measure the controller with NODES hollow nodes (default: 5000; takes an hour); fail if a limit is exceeded
	@go run ./hack/benchfleet -nodes=$(NODES)

# The steps of hack/vm: `go run ./hack/vm -list`. STEPS=boot,pause runs only these. The releases are of this source with two
# version numbers, for this machine's architecture alone.
STEPS ?=
PAUSE ?= 1m
comma := ,
VM_RELEASES := v0.91.0 v0.92.0
vm soak: DEPS += qemu-system-x86_64:qemu-system-x86 qemu-img:qemu-utils debootstrap:debootstrap mkfs.ext4:e2fsprogs zstd:zstd
.PHONY: vm-releases
vm-releases: build
	@for version in $(VM_RELEASES); do \
	  $(MAKE) --no-print-directory release VERSION=$$version PLATFORMS=linux/amd64 CLI_PLATFORMS= >/dev/null; done

vm: tools deps vm-releases $(if $(filter kubeadm,$(or $(subst $(comma), ,$(STEPS)),kubeadm)),$(kubeadm_clusters)) ## test the agent on a machine of its own: Debian in QEMU, with systemd, panics, full disks (takes an hour without KVM)
	@$(AS_ROOT) go run ./hack/vm -only=$(STEPS) -pause=$(PAUSE) -from=$(KUBEADM_FROM) -to=$(KUBEADM_TO) -previous=dist/$(firstword $(VM_RELEASES)) -release=dist/$(lastword $(VM_RELEASES))

# ONLY names parts, such as simulation,fuzz; then nothing is built for the others. NICE is a niceness, such as 19.
TIME ?= 1h
NICE ?= 0
pod-guard_NEEDS := tools $(KUBELETS) deps
power-cuts_NEEDS := tools deps build
soak: $(foreach part,$(or $(subst $(comma), ,$(ONLY)),pod-guard power-cuts),$($(part)_NEEDS)) ## simulate, fuzz, restart kubelets and cut power for TIME (default: 1h), from where the last run stopped; hack/soak/ledger.json has the totals
	@$(AS_ROOT) go run ./hack/soak -time=$(TIME) -only=$(ONLY) -nice=$(NICE)

$(TOOLS)/gremlins: tools/mutation/go.mod tools/mutation/go.sum
	@echo "building gremlins"
	@go -C tools/mutation build -o $(CURDIR)/$@ github.com/go-gremlins/gremlins/cmd/gremlins

# NAME restricts the patches to those whose name contains it. Without CORES, no other changes are made to the code.
NAME ?=
CORES ?= internal/node/trial internal/rollout internal/controller/gate internal/node/checkpoint
mutants: $(core) $(if $(CORES),$(TOOLS)/gremlins) ## show that tests find each defect of testkit/mutants again (half an hour), then change the code of CORES everywhere (hours)
	@go run ./hack/mutants -only=$(NAME)
	@for core in $(CORES); do echo "$$core"; GOFLAGS="$$GOFLAGS -short -vet=off -exec=$(CURDIR)/tools/mutation/exec" $(TOOLS)/gremlins unleash --workers 1 --timeout-coefficient 20 --invert-logical --invert-negatives=false --output-statuses lt ./$$core; done

# LINTED lists the Go modules with evenkeel's own code.
LINTED := . build/release tools/gitops
lint: $(TOOLS)/golangci-lint $(TOOLS)/govulncheck $(TOOLS)/actionlint $(MARKDOWNLINT) ## run gofmt, go vet, golangci-lint, actionlint and markdownlint; run govulncheck if its database is reachable
	@$(TOOLS)/actionlint
	@[ ! -x $(MARKDOWNLINT) ] || $(MARKDOWNLINT) 2>&1 >/dev/null
	@for module in $(LINTED); do (cd $$module && $(CURDIR)/$(TOOLS)/golangci-lint run ./...); done
	@out=$$($(TOOLS)/govulncheck ./... 2>&1) || { \
	  if [[ $$out == *"fetching vulnerabilities:"* ]]; then echo "govulncheck is skipped: its database is not reachable"; \
	  else echo "$$out" >&2; exit 1; fi; }

generate: tools ## generate CRDs, deep copies and the API reference from the API types, the table of fields, the PrometheusRule from the rules, the chart from the manifests, and the newest version in the pages
	$(TOOLS)/controller-gen object:headerFile=hack/boilerplate.go.txt paths=./api/... crd paths=./api/... output:crd:dir=config/api/crd
	$(TOOLS)/crd-ref-docs --source-path=api/v1alpha1 --config=tools/docs/config.yaml --templates-dir=tools/docs/templates \
	  --renderer=markdown --output-path=docs/api.md --log-level=ERROR
	go generate ./build/rules
	go run ./build/fields
	go run ./build/chart
	go run ./build/current

clean: ## remove all built files (Go's caches stay)
	$(AS_ROOT) rm -rf bin dist
