#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs every verify-*.sh, also after one has failed, and reports at the end.

source "$(dirname "$0")/lib.sh"

declare -a report
failed=0
for script in hack/verify-*.sh; do
  name=$(basename "${script}" .sh)
  echo "--- ${name}"
  start=${SECONDS}
  result=ok
  if ! "${script}"; then
    result=FAILED
    failed=$((failed + 1))
    [[ -e hack/update-${name#verify-}.sh ]] && result="FAILED (make update runs hack/update-${name#verify-}.sh, which may mend it)"
  fi
  report+=("$(printf '%-18s %4ds  %s' "${name}" $((SECONDS - start)) "${result}")")
done
echo
printf '%s\n' "${report[@]}"
((failed == 0)) || die "${failed} of ${#report[@]} checks failed"
