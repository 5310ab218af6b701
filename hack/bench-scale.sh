#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Measures stock upstream and Fresh KCM side by side. Arguments go to "staleness-lab bench": files or folders, and flags. OUT is the
# folder of the results, which an earlier run of this script may have filled. SLOs are then evaluated for each turn,
# benchstat compares the arms, and plots are drawn.
# The machine should have nothing else to do.

source "$(dirname "$0")/lib.sh"

out=${OUT:?is the folder of the results}
raw=_output/bench/$(basename "${out}")
if [[ -e ${out}/run.json || -e ${out}/samples.jsonl ]]; then
  rm -f "${out}"/{run.json,samples.jsonl,slos.json,profiles.json,README.md,bench.txt,benchstat.txt,PerfData.json,*.svg,*.png}
fi
rm -rf "${raw}"
echo "building benchstat, plot and slo"
go -C hack/tools/bench build -o "${ROOT}/_output/tools/" golang.org/x/perf/cmd/benchstat ./plot
go -C hack/tools/slo build -o "${ROOT}/_output/tools/slo" .
# The page cache has a file that was just linked in other, larger pages than one that was copied, and more of it counts as resident: 67 MiB in place of 64 for
# "kube-controller-manager --help". All arms run copies.
for binary in _output/bin/{,upstream/}kube-controller-manager; do
  cp "${binary}" "${binary}.copy"
  mv "${binary}.copy" "${binary}"
done
missed=0
_output/bin/staleness-lab bench --out "${out}" --raw "${raw}" "$@" || missed=$?
[[ -e ${out}/run.json ]] || exit "${missed}"

for turn in "${raw}"/*-[1-9]*/; do
  printf '{"turn":"%s","slos":' "$(basename "${turn}")"
  _output/tools/slo -json -rules build/monitoring/slos.yaml -scrapes "${turn}" || (($? == 1)) # an SLO was missed
  printf '}\n'
done >"${out}/slos.json"
_output/bin/staleness-lab bench report "${out}" >/dev/null
_output/tools/benchstat -col /arm "${out}/bench.txt" >"${out}/benchstat.txt"
_output/tools/plot "${out}/bench.txt" end-sec detect-p99-sec kcm-cpu-sec kcm-rss-B kcm-alloc-B kcm-writes kcm-reads api-calls apiserver-cpu-sec etcd-cpu-sec >/dev/null
if [[ ${out} == test/benchmark/results/* ]]; then
  hack/bench-model.sh || UPDATE=1 run_tests ./test/benchmark/report TestDocs >/dev/null
  echo "docs/benchmarks.md has the table"
fi
exit "${missed}"
