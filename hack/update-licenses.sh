#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Adds the licence header where it is missing.

source "$(dirname "$0")/lib.sh"

header() { # comment leader
  printf '%s Copyright The Fresh KCM Authors.\n%s SPDX-License-Identifier: Apache-2.0\n\n' "$1" "$1"
}

own_files '*.go' '*.sh' '*.yaml' 'Makefile' '*/Dockerfile' '.ci/run' | while read -r f; do
  grep -q 'SPDX-License-Identifier: Apache-2.0' <(head -n 4 "${f}") && continue
  leader='#'
  [[ ${f} == *.go ]] && leader='//'
  new=$(mktemp)
  if grep -q '^#!' <(head -n 1 "${f}"); then
    { head -n 1 "${f}"; header "${leader}"; tail -n +2 "${f}"; } >"${new}"
  else
    { header "${leader}"; cat "${f}"; } >"${new}"
  fi
  cat "${new}" >"${f}" # keeps the mode
  rm "${new}"
  echo "added a header to ${f}"
done
