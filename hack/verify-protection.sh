#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that no row of docs/protection.md is older than what it rests on: the edit, the edited files, and the scenario or test. For
# each that is, it names the command that makes it again.

source "$(dirname "$0")/lib.sh"

go run ./test/internal/mutants/age
