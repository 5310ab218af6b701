#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that every patch applies without fuzz or offset, round-trips, adds no file itself and has a full
# and true header, and that the copies in _output/staging have the added files and no edit besides.

source "$(dirname "$0")/lib.sh"

for module in hack/tools/staging hack/tools/build hack/tools/release hack/tools/suites; do
  go -C "${module}" test ./...
done
go -C hack/tools/staging run . -root "${ROOT}" verify
