#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Applies what go fix proposes.

source "$(dirname "$0")/lib.sh"

for module in "${own_modules[@]}"; do
  go -C "${module}" fix ./...
done
