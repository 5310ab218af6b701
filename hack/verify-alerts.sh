#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that every alert fires when it should, has an entry in docs/operations.md, and names it as its runbook. What it
# finds needs a person.

source "$(dirname "$0")/lib.sh"

while read -r alert; do
  if ! grep -qxF "### ${alert}" docs/operations.md; then
    echo "docs/operations.md: no entry \"### ${alert}\" for the alert of build/monitoring/alerts.yaml" >&2
    exit 1
  fi
  if ! grep -qF "alertname: ${alert}" build/monitoring/alerts_test.yaml; then
    echo "build/monitoring/alerts_test.yaml: no case for ${alert}" >&2
    exit 1
  fi
done < <(sed -n 's/^ *- alert: //p' build/monitoring/alerts.yaml)

# Each alert's own runbook link, in the order of the file: the page is there, and has the heading of this alert.
while read -r alert runbook; do
  page=${runbook%%#*}
  anchor=${runbook#*#}
  [[ -f ${page} ]] || die "build/monitoring/alerts.yaml: runbook \"${runbook}\" of ${alert}: there is no such page"
  grep -qxF -- "${anchor}" <(anchors "${page}") || die "build/monitoring/alerts.yaml: runbook ${runbook} of ${alert}: the page has no such heading"
  [[ ${anchor} == "${alert,,}" ]] || die "build/monitoring/alerts.yaml: runbook of ${alert} leads to ${anchor}"
done < <(awk '
  function flush() { if (alert != "") print alert, runbook }
  $1 == "-" && $2 == "alert:" { flush(); alert = $3; runbook = "" }
  $1 == "runbook_url:" { runbook = $2; sub("^https://github.com/fresh-kcm/fresh-kcm/blob/main/", "", runbook) }
  END { flush() }' build/monitoring/alerts.yaml)

# Without Prometheus' service discoveries, which the tests of alerts have no use for.
go -C hack/tools/alerts build -tags remove_all_sd -o "${ROOT}/_output/tools/promtool" github.com/prometheus/prometheus/cmd/promtool
_output/tools/promtool check rules build/monitoring/alerts.yaml >/dev/null
_output/tools/promtool test rules build/monitoring/alerts_test.yaml >/dev/null
