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

version=$(<build/VERSION)
image=$(<build/IMAGE):${version/+/_}
grep -qxF "    image: ${image}" "${made}" || die "the image in build/manifests/kubeadm/patches is not ${image}, as build/IMAGE and build/VERSION have it"
base=${version%+*}
for file in init upgrade; do
  grep -qE "^ *kubernetesVersion: ${base}\$" "build/manifests/kubeadm/${file}.yaml" || die "build/manifests/kubeadm/${file}.yaml is not for ${base}"
done
