#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Fits how the cost of kube-controller-manager grows to the kept results of benchmarks, and writes docs/benchmarks.md anew. It takes
# results of three sizes of cluster.

source "$(dirname "$0")/lib.sh"

results=test/benchmark/results
go -C hack/tools/bench build -o "${ROOT}/_output/tools/" ./model
page=$(_output/tools/model "${results}"/*/)
echo "${page}" >"${results}/model.txt"
UPDATE=1 run_tests ./test/benchmark/report TestDocs >/dev/null
echo "docs/benchmarks.md has the model"
