#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Formats our Go code.

source "$(dirname "$0")/lib.sh"

own_files '*.go' | xargs gofmt -s -w
