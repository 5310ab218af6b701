#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that every patch applies without fuzz or offset, round-trips, has a full header and keeps to
# its size, and that no edit of _output/staging is left out of the patches.

source "$(dirname "$0")/lib.sh"

for module in hack/tools/staging hack/tools/build hack/tools/release hack/tools/suites; do
  go -C "${module}" test ./...
done
go -C hack/tools/staging run . -root "${ROOT}" verify
