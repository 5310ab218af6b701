#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs end-to-end specs on kube-apiserver and kube-scheduler of another version of Kubernetes, which it builds from the
# modules of that version. SERVER is the version, FILTER chooses the specs, as in
# SERVER=v1.36.3 FILTER=scenario:4 ARM=P hack/test-skew.sh

source "$(dirname "$0")/lib.sh"

[[ ${SERVER:-} =~ ^v1\.([0-9]+)\.[0-9]+(-[a-z0-9.]+)?$ ]] || die "SERVER is '${SERVER:-}': want a version of Kubernetes, such as v1.36.3"
minor=${BASH_REMATCH[1]}
module=${ROOT}/_output/skew/${SERVER}
bin=${module}/bin
mkdir -p "${bin}"

# A module of its own: the staging modules of a version have its number, with v0 in front.
published=$(go mod download -json "k8s.io/kubernetes@${SERVER}" | awk -F'"' '$2 == "GoMod" {print $4}') ||
  die "there is no module k8s.io/kubernetes ${SERVER}"
{
  printf 'module skew\n\n%s\n\n%s\n\nrequire k8s.io/kubernetes %s\n\n' "$(grep '^go ' "${published}")" "$(grep '^godebug ' "${published}")" "${SERVER}"
  awk -v version="v0${SERVER#v1}" '$1 ~ /^k8s\.io\// && $2 == "v0.0.0" {print "replace", $1, "=>", $1, version}' "${published}"
} >"${module}/go.mod"
stamp="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  stamp+=" -X ${package}.gitMajor=1 -X ${package}.gitMinor=${minor} -X ${package}.gitVersion=${SERVER}"
done
echo "building kube-apiserver and kube-scheduler ${SERVER}; without a cache that takes minutes"
go build -C "${module}" -mod=mod -ldflags="${stamp}" -o "${bin}/" k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-scheduler
for built in "${ROOT}"/_output/bin/*; do
  [[ -e ${bin}/${built##*/} ]] || ln -s "${built}" "${bin}/"
done

FRESH_KCM_BIN_DIR=${bin} hack/test-e2e.sh --label-filter="${FILTER:-smoke}"
