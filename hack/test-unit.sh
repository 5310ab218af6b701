#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs our own tests: with the race detector for pkg/ and test/, without for cmd/ (the product links
# all of kube-controller-manager), the composition (histories an hour long, in a minute), and the tests that
# take minutes with it: those are left out by -short, and all tests of their packages run once more without the
# race detector; and the tests of our tools. Without a C compiler the race detector is left out, with a line that says
# so. Tests that need the control plane's binaries fail without them.

source "$(dirname "$0")/lib.sh"

export FRESH_KCM_REQUIRE_BINARIES=1
# For a machine that is slow, or busy: some packages take minutes with the race detector on an idle one.
patience=-timeout=40m
mapfile -t raced < <(go list ./test/... | grep -v -e '/test/conformance$' -e '/test/e2e$' -e '/test/e2e/cluster$' -e '/test/e2e/staticpod$' -e '/test/composition')
mapfile -t slow < <(grep -lr 'hack/test-unit.sh runs it without' --include='*_test.go' pkg test | xargs -n1 dirname | sort -u)
race=(env CGO_ENABLED=1 go test -race -short "${patience}")
compiler=$(CGO_ENABLED=1 go env CC)
if ! command -v "${compiler}" >/dev/null; then
  without="without the race detector, which needs a C compiler: ${compiler} is missing (Debian: apt-get install gcc libc6-dev)"
  if [[ ${CI:-} ]] && can_install; then die "${without}"; fi
  echo "${without}"
  race=(go test -short "${patience}")
fi
"${race[@]}" ./pkg/...
# Not beside those: a control plane that gets no processor loses its leader.
"${race[@]}" "${raced[@]}"
go test "${patience}" ./cmd/... ./test/composition/... "${slow[@]/#/./}"
for module in "${own_modules[@]}"; do
  # Not from go's cache, which does not know what git says.
  [[ ${module} == . ]] || go -C "${module}" test -count=1 "${patience}" ./...
done
