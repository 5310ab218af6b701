# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# What this project builds with is said by its go.mod files alone.
export GOWORK := off
export GOFLAGS := -trimpath -buildvcs=false
export CGO_ENABLED := 0

BIN := _output/bin
STAGING = go -C hack/tools/staging run . -root $(CURDIR)
BUILD = go -C hack/tools/build run . -root $(CURDIR)
RELEASE = go -C hack/tools/release run .

# Architectures of `make image` and `make release`.
ARCH ?= amd64 arm64

# Nodes of the cluster that `make run` brings up.
NODES ?= 100

# What is built: everything, or the parts named. Stock kube-controller-manager is for demo and tests, etcdutl for tests.
PARTS ?=
CLUSTER_PARTS = kube-controller-manager staleness-lab kube-apiserver kube-scheduler etcd kwok

##@ For users: see it work

.PHONY: run
run: PARTS = $(CLUSTER_PARTS) kubectl
run: build ## Bring up a local cluster with Fresh KCM and show it live; Ctrl-C stops it (NODES=100)
	@exec $(BIN)/staleness-lab up --nodes $(NODES)

.PHONY: demo
demo: PARTS = $(CLUSTER_PARTS) upstream/kube-controller-manager
demo: build ## Show faults on stock upstream and on Fresh KCM, side by side
	@exec $(BIN)/staleness-lab demo

##@ For developers: build

.PHONY: patch
patch: require-go require-git ## Make the patched copies of upstream in _output/staging (FORCE=1 drops edits)
	@$(STAGING) $(if $(FORCE),-force) apply

.PHONY: update-patches
update-patches: ## Write edits of _output/staging back to staging-patches/ (PATCH=kubernetes/NNNN-title for new files)
	@$(STAGING) update $(PATCH)

.PHONY: build
build: patch ## Build everything into _output/bin, or parts of it (PARTS='etcd kwok')
	@$(BUILD) $(PARTS)

##@ For developers: check

.PHONY: test
test: verify unit upstream-unit conformance e2e-smoke ## Everything that must pass before a change lands

.PHONY: verify
verify: patch ## Run every hack/verify-*.sh and report at the end
	@hack/verify.sh

.PHONY: update
update: patch ## Run every hack/update-*.sh: mends what verify complains of
	@hack/update.sh

.PHONY: unit
unit: build ## Unit and component tests, with the race detector on pkg/ and test/
	@hack/test-unit.sh

.PHONY: composition
composition: patch ## The real controllers on random histories, stock beside ours (SEEDS=1000 FIRST=1 REPLAY=file LOG=1)
	@SEEDS=$(or $(SEEDS),1000) FIRST=$(FIRST) REPLAY=$(REPLAY) LOG=$(LOG) go test -count=1 -timeout=24h -v -run='^TestSeeds$$' ./test/composition

.PHONY: memory
memory: patch ## The real controllers, 100,000 Jobs made and removed: what is kept, stock beside ours, in some 20 min (SOAK=100000)
	@SOAK=$(or $(SOAK),100000) go test -count=1 -timeout=24h -v -run='^TestMemoryComesBack$$' ./test/composition

.PHONY: upstream-unit
upstream-unit: patch ## Upstream's own unit tests of every patched package, gates on and off
	@hack/test-upstream-unit.sh

.PHONY: conformance
conformance: build ## Resource versions of every type, get, list and watch, versions of custom resources (UPDATE=1)
	@UPDATE=$(UPDATE) hack/test-conformance.sh

.PHONY: e2e-smoke
e2e-smoke: build ## A real cluster: 50 nodes, gates on and off, KCM killed, clean stop
	@hack/test-e2e.sh --label-filter=smoke
	@KUBECONFIG= hack/test-e2e-cluster.sh

.PHONY: e2e
e2e: build ## The fault scenarios, stock upstream beside Fresh KCM (FILTER=scenario:4, ARM=U0|U1|P|OFF|ALL, E2E_PROCS=4)
	@hack/test-e2e.sh --label-filter='$(or $(FILTER),ordinary)'

.PHONY: e2e-protection
e2e-protection: build ## Prove that each scenario fails without its protection; writes docs/protection.md (FILTER= MUTANTS=)
	@FILTER='$(FILTER)' MUTANTS='$(MUTANTS)' hack/test-e2e-protection.sh

.PHONY: protection
protection: patch ## Prove that each protection is missed by the test that is about it; writes docs/protection.md (MUTANTS='backoff read-again')
	@MUTANTS='$(MUTANTS)' hack/test-protection.sh

##@ For developers: long runs, for hours or on other clusters

.PHONY: e2e-long
e2e-long: build ## All fault scenarios, also those that take long, each settling for 60 s
	@SETTLE=60s E2E_TIMEOUT=6h hack/test-e2e.sh --label-filter='ordinary || long'

.PHONY: soak
soak: build ## Random faults for hours, with all oracles and leak checks (HOURS=8 SEED= PAGE=file)
	@HOURS='$(HOURS)' SEED='$(SEED)' PAGE='$(PAGE)' hack/test-soak.sh

.PHONY: e2e-cluster
e2e-cluster: build ## What needs no fault, on the cluster of KUBECONFIG; unset: on one of its own
	@hack/test-e2e-cluster.sh

.PHONY: static-pod-test
static-pod-test: build ## Our image as the static pod of a real kubelet: upgrade, rollback, gates, bad configuration (needs root; FILTER=)
	@FILTER='$(FILTER)' hack/test-static-pod.sh || { (($$? == 77)) && echo 'static-pod-test: nothing was proven about the static pod'; }

.PHONY: skew-test
skew-test: build ## Specs on kube-apiserver and kube-scheduler of another version (SERVER=v1.36.3 FILTER=scenario:4 ARM=P)
	@SERVER='$(SERVER)' FILTER='$(FILTER)' hack/test-skew.sh

.PHONY: upstream-integration
upstream-integration: build ## Upstream's own integration tests on stock and patched (PACKAGES='daemonset job' ARMS='stock off on')
	@hack/test-upstream-integration.sh

.PHONY: upstream-e2e
upstream-e2e: build ## Suites of upstream's e2e.test against stock and Fresh KCM (ARMS='stock off on' SUITES=Watchers)
	@hack/test-upstream-e2e.sh

.PHONY: upstream-page
upstream-page: require-go ## Write docs/upstream-tests.md from test/upstream/results.json, which the two above write
	@mkdir -p _output/upstream-tests
	@go -C hack/tools/suites run . page -records $(CURDIR)/test/upstream/results.json -choice $(CURDIR)/hack/upstream-e2e.txt >_output/upstream-tests/page.md
	@mv _output/upstream-tests/page.md docs/upstream-tests.md

##@ For developers: measure

.PHONY: bench
bench: patch ## Micro-benchmarks of the tracker beside upstream's store, compared by benchstat (COUNT=10)
	@hack/bench.sh

BENCH_PARTS = $(CLUSTER_PARTS) upstream/kube-controller-manager

.PHONY: bench-quick
bench-quick: PARTS = $(BENCH_PARTS)
bench-quick: build ## Scale benchmarks with 300 nodes, stock beside Fresh KCM, in under 15 min (FLAGS='--budget 6m')
	@OUT=$(or $(OUT),test/benchmark/results/quick) hack/bench-scale.sh test/benchmark/quick --budget 14m $(FLAGS)

.PHONY: bench-scale
bench-scale: PARTS = $(BENCH_PARTS)
bench-scale: build ## Scale benchmarks with 1,000 nodes, for hours (FILES=test/benchmark/scale FLAGS='--repeats 3' OUT=folder)
	@OUT=$(or $(OUT),test/benchmark/results/scale) hack/bench-scale.sh $(or $(FILES),test/benchmark/scale) $(FLAGS)

.PHONY: bench-model
bench-model: patch ## Fit how cost grows with nodes, pods and writes to the kept results; writes docs/benchmarks.md
	@hack/bench-model.sh

.PHONY: bench-ci
bench-ci: PARTS = $(BENCH_PARTS)
bench-ci: build ## Small benchmarks that fail if Fresh KCM makes more requests, allocations or wrong actions; no times are judged
	@OUT=_output/bench-ci hack/bench-scale.sh test/benchmark/ci --check $(FLAGS)

##@ For releasers

.PHONY: version
version: require-go require-git ## Show the version that a build would carry
	@$(BUILD) -version

.PHONY: image
image: patch ## Make the container image into _output/image, without a container engine (ARCH='amd64 arm64')
	@for arch in $(ARCH); do $(BUILD) -arch "$$arch" kube-controller-manager; done
	@$(RELEASE) image --root $(CURDIR) $(ARCH:%=--arch %)

.PHONY: image-files
image-files: patch ## Lay the files of the image into _output/image/linux-ARCH: build/Dockerfile copies them
	@for arch in $(ARCH); do $(BUILD) -arch "$$arch" kube-controller-manager; done
	@$(RELEASE) files --root $(CURDIR) $(ARCH:%=--arch %)

.PHONY: image-args
image-args: require-go require-git ## Show the arguments that build/Dockerfile is to be built with
	@$(RELEASE) args --root $(CURDIR)

.PHONY: release
release: image ## Make the release in _output/release, sign and verify it (KEY=file ARCH='amd64 arm64' DIRTY=1)
	@$(RELEASE) folder --root $(CURDIR) $(ARCH:%=--arch %) $(if $(KEY),--key '$(abspath $(KEY))') $(if $(DIRTY),--dirty)

.PHONY: verify-release
verify-release: require-go ## Verify a release (DIR=folder SIGNERS=file of those who may sign)
	@$(RELEASE) verify '$(abspath $(DIR))' $(if $(SIGNERS),--allowed-signers '$(abspath $(SIGNERS))')

.PHONY: rebase-rehearsal
rebase-rehearsal: require-go require-git ## Say how the patches fare on another base (BASE=v1.36.3); without BASE: write docs/rebase-rehearsal.md
	@$(STAGING) rehearse $(BASE)

##@ Other

.PHONY: clean
clean: ## Remove _output
	rm -rf _output

.PHONY: help
help: ## Show this text
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: require-go
require-go:
	@command -v go >/dev/null || { echo "make: go is missing: install Go $$(awk '$$1 == "go" {print $$2}' go.mod) or newer and put it in PATH" >&2; exit 1; }

.PHONY: require-git
require-git:
	@command -v git >/dev/null || { echo "make: git is missing: install it and put it in PATH" >&2; exit 1; }
