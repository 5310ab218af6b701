#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Writes docs/scenarios.md, the index of the scenarios in test/e2e, docs/coverage.md, what each controller may write, and
# docs/incidents.md, what has happened in clusters, and in docs/status.md the tests that show what is protected.

source "$(dirname "$0")/lib.sh"

UPDATE=1 run_tests ./test/e2e TestScenarioIndex TestCoverage TestIncidents TestClaims
