#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs staticcheck, also on the files that the patches add. What it finds needs a person, so there is no update script.

source "$(dirname "$0")/lib.sh"

go -C hack/tools/lint build -o "${ROOT}/_output/tools/staticcheck" honnef.co/go/tools/cmd/staticcheck
for module in "${own_modules[@]}"; do
  (cd "${module}" && "${ROOT}/_output/tools/staticcheck" ./...)
done

mapfile -t packages < <(patched_packages)
((${#packages[@]})) || die "no packages are patched"
findings=$({ _output/tools/staticcheck "${packages[@]}" || true; } 2>&1 | about_added_files)
[[ -z ${findings} ]] || die "in files that the patches add:"$'\n'"${findings}"
