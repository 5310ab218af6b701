#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs our own tests: with the race detector for pkg/ and test/, without for cmd/ (the product links
# all of kube-controller-manager) and the composition (histories an hour long, in a minute). Tests that need the control plane's binaries fail without them.

source "$(dirname "$0")/lib.sh"

export FRESH_KCM_REQUIRE_BINARIES=1
mapfile -t raced < <(go list ./pkg/... ./test/... | grep -v -e '/test/conformance$' -e '/test/e2e$' -e '/test/e2e/cluster$' -e '/test/composition')
CGO_ENABLED=1 go test -race "${raced[@]}"
go test ./cmd/... ./test/composition/...
