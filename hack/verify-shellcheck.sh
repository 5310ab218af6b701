#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs shellcheck on our scripts. What it finds needs a person, so there is no update script.

source "$(dirname "$0")/lib.sh"

need shellcheck=shellcheck
mapfile -t scripts < <(own_files '*.sh' .ci/run)
# SC2016: what is in single quotes here is meant for awk, grep or another shell.
shellcheck --exclude=SC2016 --external-sources --source-path=SCRIPTDIR "${scripts[@]}"
