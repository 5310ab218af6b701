#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that each scenario fails without its protection, by the rule that it names, and writes that into
# docs/protection.md. With FILTER, a ginkgo label filter such as scenario:4 or mutant:wake, it proves a part and replaces
# the rows of that part. MUTANTS names those whose binaries are built, unless all.

source "$(dirname "$0")/lib.sh"

read -ra mutants <<<"${MUTANTS:-}"
go run ./test/internal/mutants/build -out _output/e2e/mutants "${mutants[@]}"
export ARM=PROTECTION E2E_MUTANTS=${ROOT}/_output/e2e/mutants
commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- . ':!docs' || commit+=" with changes"
export E2E_PROTECTION=${ROOT}/docs/protection.md E2E_COMMIT=${commit}
exec hack/test-e2e.sh --label-filter="protection${FILTER:+ && (${FILTER})}"
