#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that our text has none of the common misspellings that misspell knows.

source "$(dirname "$0")/lib.sh"

hack/update-spelling.sh -error || die "hack/update-spelling.sh mends it"
