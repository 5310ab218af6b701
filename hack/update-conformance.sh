#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Writes the tables of docs/conformance.md: what the reference documents promise, from test/conformance/sentences.yaml, and the
# markers above tests, subtests and scenarios that show it.

source "$(dirname "$0")/lib.sh"

FRESH_KCM_UPDATE=1 run_tests ./test/conformance TestSentences
