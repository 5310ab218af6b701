#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the suites of upstream's e2e.test that hack/upstream-e2e.txt names, unmodified, against a cluster with
# stock kube-controller-manager and with Fresh KCM, gates off and on. ARMS (stock off on) and SUITES (a part of
# a line of that file) choose.
# What became of each suite and arm replaces the last such run in test/upstream/results.json.
# A spec that fails with Fresh KCM, and again alone, but not with stock fails the run.

source "$(dirname "$0")/lib.sh"

read -ra selected <<<"${ARMS:-stock off on}"
choice=hack/upstream-e2e.txt
out=${ROOT}/_output/upstream-tests
mkdir -p "${out}/bin"

echo "--- building e2e.test; the first time that takes minutes"
# Without debugging information, as it is 300 MB with it.
go test -C hack/tools/e2e -c -ldflags='-s -w' -o "${out}/bin/e2e.test" k8s.io/kubernetes/test/e2e
go build -o "${out}/bin/with-cluster" ./test/upstream/cmd/with-cluster
go -C hack/tools/suites build -o "${ROOT}/_output/tools/suites" .

code=$(git log -1 --format=%h -- pkg staging-patches go.mod)
git diff --quiet HEAD -- pkg staging-patches go.mod || code+=" with changes"

export FRESH_KCM_BIN_DIR=${ROOT}/_output/bin
for arm in "${selected[@]}"; do
  _output/tools/suites e2e -records "${ROOT}/test/upstream/results.json" -results "${out}/results" -arm "${arm}" -choice "${choice}" -suite "${SUITES:-}" -code "${code}" -- "${out}/bin/with-cluster" -arm "${arm}" -- \
    "${out}/bin/e2e.test" --provider=skeleton --kubectl-path="${FRESH_KCM_BIN_DIR}/kubectl" --dump-logs-on-failure=false --ginkgo.no-color --ginkgo.silence-skips --ginkgo.timeout=1h --ginkgo.poll-progress-after=5m
done
_output/tools/suites regressions -records test/upstream/results.json -choice "${choice}"
