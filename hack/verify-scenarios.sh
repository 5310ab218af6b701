#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that docs/scenarios.md is of the scenarios in test/e2e, docs/coverage.md of
# pkg/inventory, and that docs/protection.md has a row of each protection that a scenario is about.
# Proves that each claim of README.md, docs/status.md and docs/measurements.md names a test that is there.

source "$(dirname "$0")/lib.sh"

run_tests ./test/e2e TestScenarioIndex TestCoverage TestIncidents TestProtectionPage TestClaims
