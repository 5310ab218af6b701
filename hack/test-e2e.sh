#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the end-to-end suites on a real control plane. Arguments go to ginkgo, as in
# hack/test-e2e.sh --label-filter=smoke
# E2E_TIMEOUT bounds the run (60m).

source "$(dirname "$0")/lib.sh"

export FRESH_KCM_REQUIRE_BINARIES=1
mkdir -p _output/e2e
go test -count=1 -timeout 0 -v ./test/e2e -args \
  -ginkgo.junit-report="${ROOT}/_output/e2e/junit.xml" -ginkgo.timeout="${E2E_TIMEOUT:-60m}" -ginkgo.poll-progress-after=60s -ginkgo.no-color -ginkgo.v "${@/#--/--ginkgo.}"
