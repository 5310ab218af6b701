#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that docs/scenarios.md is of the scenarios in test/e2e, and docs/coverage.md of pkg/inventory.

source "$(dirname "$0")/lib.sh"

go test -count=1 -run '^(TestScenarioIndex|TestCoverage|TestIncidents)$' ./test/e2e
