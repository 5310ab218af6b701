#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that docs/rebase-rehearsal.md was made of the patches as they are now. It downloads nothing.

source "$(dirname "$0")/lib.sh"

go -C hack/tools/staging run . -root "${ROOT}" rehearsed
