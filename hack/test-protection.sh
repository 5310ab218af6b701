#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Takes away each protection that a test without control plane is about, has that test miss it, and writes that into
# docs/protection.md. MUTANTS names those that are tried, unless all.

source "$(dirname "$0")/lib.sh"

read -ra mutants <<<"${MUTANTS:-}"
commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- . ':!docs' || commit+=" with changes"
go run ./test/internal/mutants/hunt -page docs/protection.md -commit "${commit}" "${mutants[@]}"
