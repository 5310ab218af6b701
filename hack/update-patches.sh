#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Turns edits of _output/staging into patches, and new files there into files of a patch.

source "$(dirname "$0")/lib.sh"

go -C hack/tools/staging run . -root "${ROOT}" update "$@"
