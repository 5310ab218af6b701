#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the end-to-end suite on real control planes, several at a time. Arguments go to ginkgo, as in
# hack/test-e2e.sh --label-filter=smoke
# E2E_PROCS is how many specs run at a time (4), E2E_TIMEOUT bounds the run (60m).
# Shows a line for each spec that ends; E2E_OUT (_output/e2e) has the rest: run.log, junit.xml and table.txt.

source "$(dirname "$0")/lib.sh"

out=${E2E_OUT:-${ROOT}/_output/e2e}
mkdir -p "${out}"
rm -f "${out}"/{run.log,junit.xml,table.txt,failed.txt,progress.*}
go build -o _output/tools/ginkgo github.com/onsi/ginkgo/v2/ginkgo
go test -c -o "${out}/e2e.test" ./test/e2e
go run ./test/internal/slowdisk -out "${out}/etcd-slow"

export FRESH_KCM_REQUIRE_BINARIES=1 E2E_SLOW_ETCD=${out}/etcd-slow E2E_TABLE=${E2E_TABLE:-${out}/table.txt} E2E_PROGRESS=${out}/progress.$$
mkfifo "${E2E_PROGRESS}"
trap 'rm -f "${E2E_PROGRESS}"' EXIT
all=0 ended=0 reason=0 # how many lines of a failed spec's reason are still wanted at the end
while IFS= read -r line; do # awk may read ahead
  case ${line} in
    [0-9]*' specs, '*) all=${line%% *} ;;
    'ok '*) line="[$((ended += 1))/${all}] ${line}" reason=0 ;;
    'FAILED '*) line="[$((ended += 1))/${all}] ${line}" reason=12 ;;
    '  '*) ;;
    *) reason=0 ;;
  esac
  if ((reason > 0)); then
    printf '%.500s\n' "${line}" >>"${out}/failed.txt"
    reason=$((reason - 1))
  fi
  printf '%s\n' "${line}"
done <"${E2E_PROGRESS}" &
exec 3>"${E2E_PROGRESS}" # lest its reader end with the first writer

result=0
_output/tools/ginkgo run --procs="${E2E_PROCS:-4}" --timeout="${E2E_TIMEOUT:-60m}" --poll-progress-after=120s --no-color --fail-on-empty -v \
  --output-dir="${out}" --junit-report=junit.xml "$@" "${out}/e2e.test" -- -test.run='^TestE2E$' >"${out}/run.log" 2>&1 3>&- || result=$?
exec 3>&-
wait
if ((result != 0)); then
  # What ginkgo itself has to say, of a suite that did not even begin for instance.
  tail -n 20 "${out}/run.log"
  [[ ! -e ${out}/failed.txt ]] || cat "${out}/failed.txt"
  die "failed; all about it is in ${out}/run.log"
fi
