#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that each row of docs/protection.md was made with the scenario or test, and with the files that are edited, as they are now.

source "$(dirname "$0")/lib.sh"

go run ./test/internal/mutants/age
