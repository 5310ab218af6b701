#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the tracker's micro-benchmarks beside upstream's consistency store, in turns in one run, and
# compares them with benchstat. COUNT=10 says how often. The machine should have nothing else to do.

source "$(dirname "$0")/lib.sh"

out=_output/bench/rvtracker.txt
mkdir -p "$(dirname "${out}")"
go test -c -o _output/bench/rvtracker.test ./pkg/rvtracker
for _ in $(seq "${COUNT:-10}"); do
  _output/bench/rvtracker.test -test.run '^$' -test.bench . -test.benchmem -test.benchtime "${BENCHTIME:-200ms}"
done 2>/dev/null | tee "${out}" | grep --line-buffered '^Benchmark' >&2
go -C hack/tools/bench build -o "${ROOT}/_output/tools/benchstat" golang.org/x/perf/cmd/benchstat
_output/tools/benchstat -col /arm "${out}"
