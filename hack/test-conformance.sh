#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Tests the API that this project builds on, on a real apiserver and etcd. With UPDATE=1 it writes what it found
# into docs/conformance.md. Arguments go to go test, as in hack/test-conformance.sh -run TestList

source "$(dirname "$0")/lib.sh"

export FRESH_KCM_REQUIRE_BINARIES=1 FRESH_KCM_UPDATE=${UPDATE:-}
# The tests of types wait for bookmarks most of the time: all at once.
mkdir -p _output
go test -count=1 -timeout 30m -parallel 100 -v "$@" ./test/conformance | tee _output/conformance.log |
  grep --line-buffered -vE '^=== (RUN|PAUSE|CONT|NAME)'
! grep -q 'no tests to run' _output/conformance.log || die "no test has such a name: $*"
