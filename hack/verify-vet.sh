#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs go vet, also on the files that the patches add, and proves that go fix has nothing to modernise.

source "$(dirname "$0")/lib.sh"

for module in "${own_modules[@]}"; do
  go -C "${module}" vet ./...
  fixes=$(go -C "${module}" fix -diff ./... 2>&1) || true
  [[ -z ${fixes} ]] || die "go fix would change ${module} (hack/update-vet.sh does it):"$'\n'"${fixes}"
done

mapfile -t packages < <(patched_packages)
((${#packages[@]})) || die "no packages are patched"
findings=$({ go vet "${packages[@]}" || true; } 2>&1 | about_added_files)
[[ -z ${findings} ]] || die "in files that the patches add:"$'\n'"${findings}"
