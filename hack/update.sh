#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs every update-*.sh: each mends what the verify script of the same name complains of.

source "$(dirname "$0")/lib.sh"

for script in hack/update-*.sh; do
  echo "--- $(basename "${script}" .sh)"
  "${script}"
done
