#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Makes docs/rebase-rehearsal.md if the patches have changed since: downloads the other bases (100 MB each).

source "$(dirname "$0")/lib.sh"

hack/verify-rebase.sh 2>/dev/null || make rebase-rehearsal
