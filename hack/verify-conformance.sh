#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that every test that docs/conformance.md names exists, and that it names every test of
# test/conformance. What it finds needs a person.

source "$(dirname "$0")/lib.sh"

page=docs/conformance.md
folder=test/conformance
problems=0
complain() {
  echo "$*" >&2
  problems=$((problems + 1))
}

# A name is `Test`, `Test/subtest` or `folder:Test`.
declare -A named
while IFS= read -r name; do
  dir=${folder}
  [[ ${name} == *:* ]] && dir=${name%%:*}
  test=${name#*:}
  function=${test%%/*}
  named[${dir}:${function}]=1
  grep -qsE "^func ${function}\(" "${dir}"/*_test.go || complain "${page}: there is no ${function} in ${dir}"
  [[ ${test} != */* ]] || grep -qsF -- "t.Run(\"${test#*/}\"" "${dir}"/*_test.go ||
    complain "${page}: there is no subtest \"${test#*/}\" in ${dir}"
done < <(grep -oE '`([a-z/]+:)?Test[A-Z][^`]*`' "${page}" | tr -d '`' | sort -u)

while IFS= read -r function; do
  [[ -n ${named[${folder}:${function}]-} ]] || complain "${page} does not name ${function} of ${folder}"
done < <(grep -ohE '^func Test[A-Z][A-Za-z0-9]*' "${folder}"/*_test.go | sed 's/^func //' | grep -v '^TestMain$')

((${#named[@]} > 0)) || die "${page} names no test"
((problems == 0)) || die "${problems} problems"
