#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that each scenario fails without its protection, and writes docs/protection.md from that. With FILTER, a
# ginkgo label filter such as scenario:4 or mutant:wake, it proves a part and replaces the rows of that part.

source "$(dirname "$0")/lib.sh"

go run ./test/internal/mutants/build -out _output/e2e/mutants
export ARM=PROTECTION E2E_MUTANTS=${ROOT}/_output/e2e/mutants
commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- . ':!docs' || commit+=" with changes"
export E2E_PROTECTION=${ROOT}/docs/protection.md E2E_PROTECTION_ROWS=${ROOT}/_output/e2e/protection.json E2E_COMMIT=${commit}
[[ -n ${FILTER:-} ]] || rm -f "${E2E_PROTECTION_ROWS}"
exec hack/test-e2e.sh --label-filter="protection${FILTER:+ && (${FILTER})}"
