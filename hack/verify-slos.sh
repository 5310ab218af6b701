#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that every SLO has the threshold that docs/slos.md says, and cases in which it is met and missed, and runs these with
# promtool. `make unit` runs the tests of hack/tools/slo. What it finds needs a person.

source "$(dirname "$0")/lib.sh"

# rules prints the threshold of every SLO that a file has rules for.
rules() {
  awk '
    $1 == "-" && $2 == "record:" { threshold = ($3 == "fresh_kcm_slo:threshold"); slo = "" }
    threshold && $1 == "slo:" { slo = $2 }
    threshold && slo != "" && $1 == "expr:" { gsub(/[^0-9.]/, "", $2); print slo, $2 }' "$1"
}

# The page's table has a row "| `slo` | ... | threshold |", and the page a heading with the SLO's name.
check() {
  while read -r slo threshold; do
    grep -qE "^\| \`${slo}\` \|.*\| ${threshold}( s)? \|$" docs/slos.md || die "docs/slos.md: no row for ${slo} with the threshold ${threshold} of $1"
    for outcome in met missed; do
      value=$([[ ${outcome} == met ]] && echo 1 || echo 0)
      grep -A1 -E "fresh_kcm_slo:met\{.*slo=\"${slo}\"\}" "$2" | grep -qE "value: ${value}$" || die "$2: no case in which ${slo} is ${outcome}"
    done
  done < <(rules "$1")
}
check build/monitoring/slos.yaml build/monitoring/slos_test.yaml
check hack/tools/slo/judged.yaml hack/tools/slo/judged_test.yaml

go -C hack/tools/alerts build -tags remove_all_sd -o "${ROOT}/_output/tools/promtool" github.com/prometheus/prometheus/cmd/promtool
for rules in build/monitoring/slos hack/tools/slo/judged; do
  _output/tools/promtool check rules "${rules}.yaml" >/dev/null
  _output/tools/promtool test rules "${rules}_test.yaml" >/dev/null
done
