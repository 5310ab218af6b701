#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that every module that is linked into kube-controller-manager or staleness-lab has a licence that is allowed. The texts
# are those that a release passes on. What it finds needs a person: hack/tools/release/licenses.go has the list.

source "$(dirname "$0")/lib.sh"

go -C hack/tools/release run . licenses --root "${ROOT}" ./cmd/kube-controller-manager ./cmd/staleness-lab
