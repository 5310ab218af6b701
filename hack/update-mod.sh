#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Tidies every go.mod.

source "$(dirname "$0")/lib.sh"

while read -r module; do
  go -C "${module}" mod tidy
done < <(all_modules)
