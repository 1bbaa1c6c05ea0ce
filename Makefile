# deckhand: see `make help`.

# Pinned in tools/*/go.mod and test/kubernetes/go.mod; named here because the programs print them.
CONTAINERD_VERSION := v2.4.2
RUNC_VERSION := 1.5.2
KUBELET_VERSION := v1.36.3

BIN := $(CURDIR)/bin
ROOT_DIR ?= /var/lib/deckhand
CLUSTER_DIR ?= /var/lib/deckhand-cluster
CONFORMANCE_DIR ?= /var/lib/deckhand-conformance
GO ?= go
LAW_STEPS ?= 2000000
LAW_FROM ?= 0
ATTACK ?= 1m

# The same compiler flags for everything except cgo (runc, the race detector) and position-independent programs: the tests, the
# kubelet, the control plane and containerd share most of their imports, and so their build cache.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

# Without gRPC's trace pages, which deckhand doesn't serve: they import html/template, which stops the linker from removing unused methods.
TAGS := grpcnotrace

# Architectures for which Go's own linker makes position-independent programs.
PIE = $(if $(filter amd64 arm64 loong64 ppc64le s390x,$(shell $(GO) env GOARCH)),-buildmode=pie)

CONTAINERD_TOOLS := containerd containerd-shim-runc-v2 ctr
CNI_PLUGINS := bridge host-local loopback portmap
IMAGES := $(BIN)/images/pause.tar $(BIN)/images/web.tar

# The parts that `make run` builds, a line for each.
STEPS := deckhand $(addprefix $(BIN)/,$(CONTAINERD_TOOLS) runc $(CNI_PLUGINS)) images

CONTAINERD_PKG := github.com/containerd/containerd/v2
CONTAINERD_TAGS := no_btrfs no_devmapper no_zfs no_aufs

SHELL := /bin/bash
.DEFAULT_GOAL := help

##@ Everyday

.PHONY: help
help: ## Show this.
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: deps ## Build everything and run the pods of examples/ (as root). Ctrl-C leaves them running.
	@MAKE="$(MAKE)" scripts/steps.sh $(STEPS)
	$(BIN)/deckhand up --root-dir $(ROOT_DIR) --images $(BIN)/images examples/

.PHONY: run-cluster
run-cluster: deps ## Make this machine a Kubernetes cluster of one node (as root), and say how to use kubectl with it. Ctrl-C ends the cluster; its pods run on.
	@MAKE="$(MAKE)" scripts/steps.sh $(STEPS) controlplane
	@$(GO) build -o $(BIN)/run-cluster ./test/cluster/run
	@$(BIN)/run-cluster --bin $(BIN) --dir $(CLUSTER_DIR) --settings "$(CLUSTER_SETTINGS)"

.PHONY: clean
clean: ## Remove everything that `make run` and `make run-cluster` started, and all build results.
	@if [ -x $(BIN)/deckhand ]; then $(BIN)/deckhand reset --yes --root-dir $(ROOT_DIR); \
	elif [ -e $(ROOT_DIR)/.deckhand ]; then $(MAKE) --no-print-directory build && $(BIN)/deckhand reset --yes --root-dir $(ROOT_DIR); fi
	@if [ -e $(CLUSTER_DIR)/deckhand ]; then $(MAKE) --no-print-directory deckhand && $(BIN)/deckhand reset --yes --root-dir $(CLUSTER_DIR)/deckhand; fi
	rm -rf $(CLUSTER_DIR) $(BIN)

.PHONY: build
build: deckhand tools images ## Build deckhand, its runtime tools and its images into bin/.

.PHONY: deps
deps: ## Install missing Debian packages (as root).
	@scripts/install-deps.sh

##@ Checks

.PHONY: test
# The seed is fixed, so that only a change of the code can make a test run fail; `make laws` uses new seeds.
test: LAW_FROM = 1
# Attacks are short here; `make attack` goes on for a minute each.
test: ATTACK = 20s
test: test-deps test-kernel lint tools images ## Run everything: checks, unit tests with -race, attacks, end-to-end tests (as root).
	+$(MAKE) --no-print-directory parts & parts=$$!; \
	$(MAKE) --no-print-directory unit || { kill $$parts; wait $$parts; exit 1; }; \
	wait $$parts
	+$(MAKE) --no-print-directory laws LAW_FROM=$(LAW_FROM)
	+$(MAKE) --no-print-directory attack ATTACK=$(ATTACK)
	+$(MAKE) --no-print-directory e2e

# What only attacks and end-to-end tests run. It is built beside the unit tests, which wait for two thirds of their time: at
# the lowest priority the compiler gets what they leave of the processors.
.PHONY: parts
parts:
	+nice -n 19 $(MAKE) --no-print-directory kubelet controlplane deckhand
	nice -n 19 $(GO) test -vet=off -c -o /dev/null -fuzz '^FuzzRequest$$' ./internal/server/nodeapi

.PHONY: test-deps
test-deps: ## Install missing Debian packages for building and testing.
	@scripts/install-deps.sh test

.PHONY: lint
lint: $(BIN)/staticcheck ## Check formatting, the rules of internal/archtest and the reference pages, and run vet and staticcheck.
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not formatted (gofmt -w):"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags systemd ./internal/resources/cgroup
	$(GO) vet -tags cgroupv2 ./internal/host/alarm
	$(GO) vet -tags numa ./internal/host/clock ./internal/agent
	$(GO) vet -tags quota ./internal/host/room ./internal/agent
	$(BIN)/staticcheck ./...
	$(GO) test -vet=off -count=1 ./internal/archtest
	$(GO) run ./docs/reference -check

.PHONY: docs
docs: ## Write docs/reference, from the program's texts.
	$(GO) run ./docs/reference

# Packages that start no goroutine: without the race detector their tests are five times as fast. And host/alarm: under
# the detector its test program isn't stalled by the kernel, so that no alarm comes.
SEQUENTIAL := $(addprefix ./internal/,pod/manifest pod/spec lifecycle desired/reader host/alarm)
# Tests that run without it, and their packages: they start a process for each step at which it is killed, or measure memory.
WITHOUT_RACE := '^(TestKillPoints|TestDiskMoments|TestManyDeadContainers|TestKilled(|AtAnyStep|AtEveryStep|Anywhere))$$|Contract$$/.*/^killed$$'
WITHOUT_RACE_IN := $(addprefix ./internal/,agent runtime/observed resources/cgroup $(addprefix volume/,atomicwriter binder manager objectfiles \
	plugins subpath teardown))

.PHONY: unit
# TestKillPoints kills an agent at each of its steps: without the race detector that takes a third of the time, and
# in TestKillPointsAtRandom the agent runs under it. The packages of volumes and groups kill processes of one goroutine.
# Tests are built without vet, because lint runs it, and `go test` would check every dependency again. archtest is left
# out as well: lint runs it, and it takes ten times as long with the race detector.
unit: tools images ## Run the unit tests, with the race detector.
	$(GO) run ./test/report -vet=off -timeout 25m -- $(SEQUENTIAL)
	$(GO) run ./test/report -vet=off -timeout 25m -run $(WITHOUT_RACE) -- $(WITHOUT_RACE_IN)
	CGO_ENABLED=1 $(GO) run ./test/report -vet=off -race -timeout 25m -skip $(WITHOUT_RACE) -- \
		$$($(GO) list ./internal/... | grep -v -e /archtest $(SEQUENTIAL:./%=-e '/%$$')) ./cmd/... ./bench/... ./images/... ./docs/... ./test/docs ./test/mutate ./test/report ./test/registry ./tools/...

.PHONY: laws
laws: ## Check the invariants of the core over millions of random steps. LAW_STEPS=N sets their number, LAW_FROM=SEED repeats a run.
	$(GO) test -vet=off -count=1 -v -timeout 2h -run TestLawsManySteps ./internal/lifecycle -laws.steps=$(LAW_STEPS) -laws.from=$(LAW_FROM)

.PHONY: mutate
mutate: ## Put about a hundred faults into the core, one at a time: the laws have to find nine of ten. MUTATIONS=EXPRESSION selects some.
	$(GO) run ./test/mutate -run '$(MUTATIONS)'

.PHONY: attack
attack: ## Swap links under the code that opens pods' paths, and send random requests to the HTTPS server, for a minute each. ATTACK=10m for longer (as root).
	$(GO) test -vet=off -count=1 -v -p 2 -timeout 24h -run '^TestAttack' ./internal/kit/safeopen ./internal/volume/subpath ./internal/volume/teardown -attack.duration=$(ATTACK)
	$(GO) test -vet=off -run '^$$' -fuzz '^FuzzRequest$$' -fuzztime $(ATTACK) ./internal/server/nodeapi

.PHONY: test-kernel
test-kernel: $(BIN)/test-kernel/vmlinuz ## Fetch Debian's kernel for the machine that test/numa emulates.

$(BIN)/test-kernel/vmlinuz:
	scripts/test-kernel.sh $(@D)

.PHONY: e2e
e2e: tools images deckhand kubelet controlplane test-kernel ## Run the end-to-end tests on a real containerd.
	cd test/kubernetes && $(GO) test -count=1 -vet=off .
	failed=0; \
	$(GO) run ./test/report -vet=off -count=1 -p 2 -timeout 30m -- ./test/cgroupv2/... ./test/systemd/... ./test/takeover ./test/numa/... ./test/quota/... ./test/csidriver/... || failed=1; \
	$(GO) run ./test/report -vet=off -count=1 -p 1 -timeout 30m -- ./test/e2e/... ./test/cluster/... ./test/packaging || failed=1; \
	exit $$failed

.PHONY: conformance
conformance: deckhand ## Run Kubernetes' own conformance specs, of a cluster and of one node, against deckhand (as root; two hours the first time). See test/conformance.
	export LAB=$(CONFORMANCE_DIR) AGENT=$(BIN)/deckhand; failed=0; \
	test/conformance/run.sh || failed=1; \
	test/conformance/node.sh || failed=1; \
	exit $$failed

.PHONY: bench
bench: bench-core bench-pods bench-volumes bench-images bench-probes bench-logs bench-exec bench-scale bench-cluster ## Measure everything, part by part.

.PHONY: bench-core
bench-core: ## Measure one decision, its recording, and the admission of 500 pods.
	$(GO) test -run '^$$' -bench . -benchtime 2000x ./internal/lifecycle/transcript ./internal/lifecycle/admission

.PHONY: bench-pods
bench-pods: deps build ## Compare pod start, restart and idle cost with plain CRI calls.
	$(GO) run ./bench/cmd/bench pods

.PHONY: bench-scale
bench-scale: build ## Measure deckhand alone with 500 and 2,000 pods on an in-memory runtime.
	$(GO) run ./bench/cmd/bench scale

.PHONY: bench-cluster
bench-cluster: deps build kubelet controlplane ## Compare pods of a real control plane, and the cost of their statistics, on deckhand and on the kubelet in turns (as root).
	$(GO) run ./bench/cmd/bench cluster

.PHONY: bench-probes
bench-probes: ## Measure 1,000 HTTP probes a second beside bare system calls and net/http.
	$(GO) run ./bench/cmd/bench probes

.PHONY: bench-logs
bench-logs: ## Measure reading and rotating container logs beside plain scans and copies.
	$(GO) test -run '^$$' -bench . -benchtime 20x ./internal/runtime/logs ./internal/runtime/logs/rotate
	$(GO) test -run '^$$' -bench Log -benchtime 20x ./internal/server/nodeapi

.PHONY: bench-exec
bench-exec: deps build ## Compare commands in a container with plain CRI calls, and measure the cost of authorization.
	$(GO) run ./bench/cmd/bench exec
	$(GO) test -run '^$$' -bench Known -benchtime 2000x ./internal/server/secure

.PHONY: bench-images
bench-images: deps build ## Compare pulls with plain CRI calls, and count the pulls of 100 pods with one image.
	$(GO) run ./bench/cmd/bench images

.PHONY: bench-volumes
bench-volumes: build ## Compare volumes with bare system calls and bare calls of a CSI driver, and measure 600 of them at rest and while they are edited.
	$(GO) run ./bench/cmd/bench volumes

##@ Packages

.PHONY: dist
dist: tools images ## Build a Debian package, a tar.gz and their SHA256SUMS into dist/.
	rm -rf dist
	packaging/build.sh $(BIN) dist

##@ Parts

.PHONY: deckhand
deckhand: ## Build deckhand alone.
	$(GO) build $(PIE) -tags $(TAGS) -o $(BIN)/deckhand ./cmd/deckhand

$(BIN)/staticcheck: tools/lint/go.mod tools/lint/go.sum
	@mkdir -p $(@D)
	cd tools/lint && $(GO) build -o $@ honnef.co/go/tools/cmd/staticcheck

.PHONY: tools
tools: $(addprefix $(BIN)/,$(CONTAINERD_TOOLS) runc $(CNI_PLUGINS)) ## Build containerd, its shim, runc and the CNI plugins.

.PHONY: images
images: $(IMAGES) ## Build the pause and web images.

$(addprefix $(BIN)/,$(CONTAINERD_TOOLS)): tools/containerd/go.mod tools/containerd/go.sum
	@mkdir -p $(@D)
	cd tools/containerd && $(GO) build -tags "$(CONTAINERD_TAGS)" \
		-ldflags "-s -w -X $(CONTAINERD_PKG)/version.Version=$(CONTAINERD_VERSION)" -o $@ $(CONTAINERD_PKG)/cmd/$(@F)

.PHONY: kubelet
kubelet: $(BIN)/kubelet ## Build the kubelet for comparisons in tests; deckhand contains nothing of it.

$(BIN)/kubelet: test/kubernetes/go.mod test/kubernetes/go.sum
	@mkdir -p $(@D)
	cd test/kubernetes && $(GO) build \
		-ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$(KUBELET_VERSION)" -o $@ k8s.io/kubernetes/cmd/kubelet

.PHONY: controlplane
controlplane: $(BIN)/controlplane ## Build the control plane that tests join, as one program: etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kube-proxy, kubectl, kubeadm, CoreDNS, metrics-server, Prometheus' queries.

$(BIN)/controlplane: test/kubernetes/go.mod test/kubernetes/go.sum $(wildcard test/kubernetes/controlplane/*.go)
	@mkdir -p $(@D)
	cd test/kubernetes && $(GO) build \
		-ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$(KUBELET_VERSION)" -o $@ ./controlplane

# runc needs libseccomp, and with it cgo.
$(BIN)/runc: tools/runc/go.mod tools/runc/go.sum
	@mkdir -p $(@D)
	cd tools/runc && CGO_ENABLED=1 $(GO) build -tags seccomp \
		-ldflags "-s -w -X main.version=$(RUNC_VERSION)" -o $@ github.com/opencontainers/runc

# The directory of each plugin in the module.
CNI_bridge := main/bridge
CNI_host-local := ipam/host-local
CNI_loopback := main/loopback
CNI_portmap := meta/portmap

$(addprefix $(BIN)/,$(CNI_PLUGINS)): tools/runc/go.mod tools/runc/go.sum
	@mkdir -p $(@D)
	cd tools/runc && $(GO) build -ldflags "-s -w" -o $@ \
		github.com/containernetworking/plugins/plugins/$(CNI_$(@F))

$(IMAGES) &: images/pause/pause.c $(wildcard images/web/*.go) images/build/main.go
	$(GO) run ./images/build -o $(BIN)/images pause web
