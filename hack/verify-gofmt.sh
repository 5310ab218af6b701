#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that our Go code is formatted.

source "$(dirname "$0")/lib.sh"

unformatted=$(own_files '*.go' | xargs gofmt -s -l)
[[ -z ${unformatted} ]] || die "not formatted (hack/update-gofmt.sh does it):"$'\n'"${unformatted}"
