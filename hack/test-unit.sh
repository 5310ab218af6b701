#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs our own tests: with the race detector for pkg/ and test/, without for cmd/ (the product links
# all of kube-controller-manager), the composition (histories an hour long, in a minute), and the tests that
# take minutes with it: those are left out by -short, and all tests of their packages run once more without the
# race detector. Tests that need the control plane's binaries fail without them.

source "$(dirname "$0")/lib.sh"

export FRESH_KCM_REQUIRE_BINARIES=1
mapfile -t raced < <(go list ./test/... | grep -v -e '/test/conformance$' -e '/test/e2e$' -e '/test/e2e/cluster$' -e '/test/e2e/staticpod$' -e '/test/composition')
mapfile -t slow < <(grep -lr 'hack/test-unit.sh runs it without' --include='*_test.go' pkg test | xargs -n1 dirname | sort -u)
CGO_ENABLED=1 go test -race -short ./pkg/...
# Not beside those: a control plane that gets no processor loses its leader.
CGO_ENABLED=1 go test -race -short "${raced[@]}"
go test ./cmd/... ./test/composition/... "${slow[@]/#/./}"
