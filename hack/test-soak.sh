#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Injects random faults into a cluster at work for HOURS, judges all that happens, and looks for leaks; see test/e2e/soak_test.go.
# Writes the page PAGE (_output/soak/soak.md) with the figures, and what the SLOs of docs/slos.md came to under faults.
# SEED repeats the schedules of another run, SOAK_BINARY takes another build of kube-controller-manager.

source "$(dirname "$0")/lib.sh"

[[ ${HOURS:-} =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "HOURS says how long, as in make soak HOURS=0.5"
export HOURS SOAK_OUT=${ROOT}/_output/soak
page=${PAGE:-${SOAK_OUT}/soak.md}
[[ -z ${SOAK_BINARY:-} ]] || SOAK_BINARY=$(realpath -e "${SOAK_BINARY}")
rm -rf "${SOAK_OUT}"
mkdir -p "${SOAK_OUT}"

started=$(date -u +%Y-%m-%dT%H:%MZ)
commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- . ':!docs' || commit+=" with changes"
result=0
# A round that has begun is ended, and a cluster that needs long to heal is waited for.
# A run of other specs meanwhile must not take its log away.
E2E_OUT=${SOAK_OUT}/e2e E2E_PROCS=1 E2E_TIMEOUT=$(awk "BEGIN {print int(${HOURS} * 60) + 60}")m hack/test-e2e.sh --label-filter=soak || result=$?
[[ -e ${SOAK_OUT}/page.md ]] || die "no figures: the run broke off"

slos=$(go -C hack/tools/slo run . -rules "${ROOT}/build/monitoring/slos.yaml" -scrapes "${SOAK_OUT}/scrapes") || true
{
  echo "# Soak"
  echo
  echo "Random faults over a cluster at work, on one kube-controller-manager that is not restarted. Written by"
  echo "\`make soak HOURS=${HOURS}\` at ${started} on commit ${commit}, $(nproc) processors, $(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo), $(go version | awk '{print $3, $4}')."
  echo
  cat "${SOAK_OUT}/page.md"
  echo
  echo "The SLOs of docs/slos.md during the faults, which their conditions exclude:"
  echo
  echo '```'
  echo "${slos}"
  echo '```'
} >"${page}"
echo "${slos}"
echo "the figures are in ${page}"
exit "${result}"
