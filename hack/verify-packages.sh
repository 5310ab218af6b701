#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that docs/packages.md is of the packages and imports that there are, and that every package says what it is.

source "$(dirname "$0")/lib.sh"

made=$(mktemp)
trap 'rm -f "${made}"' EXIT
hack/update-packages.sh "${made}"
diff -u docs/packages.md "${made}" || die "the packages have changed: run hack/update-packages.sh"
silent=$(grep -E '^\|( [0-9]+ \|)? \[[^|]*\|  \|' "${made}") || true
[[ -z ${silent} ]] || die "packages without a comment that says what they do:"$'\n'"${silent}"
