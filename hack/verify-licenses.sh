#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that every source file of ours says its copyright and licence in its first lines.

source "$(dirname "$0")/lib.sh"

missing=$(own_files '*.go' '*.sh' '*.yaml' 'Makefile' '*/Dockerfile' '.ci/run' | while read -r f; do
  grep -q 'SPDX-License-Identifier: Apache-2.0' <(head -n 4 "${f}") && grep -q 'Copyright The Fresh KCM Authors.' <(head -n 4 "${f}") || echo "${f}"
done)
[[ -z ${missing} ]] || die "no licence header (hack/update-licenses.sh adds it):"$'\n'"${missing}"
