#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs every verify-*.sh, also after one has failed, and reports at the end. A check that this machine does not allow is
# reported as skipped, with the reason.

source "$(dirname "$0")/lib.sh"

declare -a report
failed=0 skipped=0
said=$(mktemp)
trap 'rm -f "${said}"' EXIT
for script in hack/verify-*.sh; do
  name=$(basename "${script}" .sh)
  echo "--- ${name}"
  start=${SECONDS}
  status=0
  "${script}" 2>&1 | tee "${said}" || status=$?
  if ((status == 0)); then
    result=ok
  elif ((status == not_allowed)); then
    result="skipped: $(tail -n 1 "${said}" | sed 's/^SKIPPED: //')"
    skipped=$((skipped + 1))
  else
    result=FAILED
    failed=$((failed + 1))
    [[ -e hack/update-${name#verify-}.sh ]] && result="FAILED (make update runs hack/update-${name#verify-}.sh, which may mend it)"
  fi
  report+=("$(printf '%-18s %4ds  %s' "${name}" $((SECONDS - start)) "${result}")")
done
echo
printf '%s\n' "${report[@]}"
((skipped == 0)) || echo "${skipped} of ${#report[@]} checks were skipped: of what they check nothing is known"
((failed == 0)) || die "${failed} of ${#report[@]} checks failed"
