#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the specs that need no fault against the cluster of KUBECONFIG, or of one that it starts if that
# is unset. Arguments go to ginkgo, as in hack/test-e2e-cluster.sh --label-filter=FeatureGate:StaleControllerConsistency

source "$(dirname "$0")/lib.sh"

export FRESH_KCM_REQUIRE_BINARIES=1
mkdir -p _output/e2e
go test -count=1 -timeout 0 -v ./test/e2e/cluster -args --kubeconfig="${KUBECONFIG:+$(realpath "${KUBECONFIG}")}" \
  -ginkgo.junit-report="${ROOT}/_output/e2e/junit-cluster.xml" -ginkgo.timeout=20m -ginkgo.no-color -ginkgo.fail-on-empty -ginkgo.v "${@/#--/--ginkgo.}"
