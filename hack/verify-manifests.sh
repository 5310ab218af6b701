#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that kubeadm takes the files in build/manifests/kubeadm, that what it makes of them is, byte for byte, the
# static pod that we ship, and that the gates and the image's tag in them are those of this tree.

source "$(dirname "$0")/lib.sh"

made=$(mktemp)
trap 'rm -f "${made}"' EXIT
hack/update-manifests.sh "${made}"
diff -u build/manifests/kube-controller-manager.yaml "${made}" || die "kubeadm makes something else: run hack/update-manifests.sh"

tag=$(tr + _ <build/VERSION)
grep -qE "^    image: [^ ]*/kube-controller-manager:${tag}\$" "${made}" || die "the image's tag in build/manifests/kubeadm/patches is not ${tag}, the version of build/VERSION"
base=${tag%_fresh.*}
for file in init upgrade; do
  grep -qE "^ *kubernetesVersion: ${base}\$" "build/manifests/kubeadm/${file}.yaml" || die "build/manifests/kubeadm/${file}.yaml is not for ${base}"
done
