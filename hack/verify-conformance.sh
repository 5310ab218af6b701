#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that docs/conformance.md is of test/conformance/sentences.yaml and of the markers above tests: that each sentence has a
# test or says why not, that no marker names what is not a sentence, and that none is above something else than a test.

source "$(dirname "$0")/lib.sh"

run_tests ./test/conformance TestSentences TestMarkers
