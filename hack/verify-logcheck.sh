#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that what the product logs is structured and contextual, by Kubernetes' own logcheck;
# hack/tools/lint/logcheck has the exceptions. What it finds needs a person.

source "$(dirname "$0")/lib.sh"

go -C hack/tools/lint build -o "${ROOT}/_output/tools/logcheck" ./logcheck
go vet -vettool="${ROOT}/_output/tools/logcheck" -logcheck.check-contextual -logcheck.check-value ./pkg/... ./cmd/kube-controller-manager
