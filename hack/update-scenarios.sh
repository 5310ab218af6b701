#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Writes docs/scenarios.md, the index of the scenarios in test/e2e, and docs/coverage.md, what each controller may write.

source "$(dirname "$0")/lib.sh"

UPDATE=1 go test -count=1 -run '^(TestScenarioIndex|TestCoverage)$' ./test/e2e
