#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Corrects common misspellings. With -error it only names them. The patches have upstream's own text as well.

source "$(dirname "$0")/lib.sh"

go -C hack/tools/lint build -o "${ROOT}/_output/tools/misspell" github.com/golangci/misspell/cmd/misspell
own_files '*.go' '*.sh' '*.md' '*.yaml' '*.html' '*.json' '*.tmpl' Makefile '*/Dockerfile' .ci/run |
  xargs _output/tools/misspell "${1:--w}"
