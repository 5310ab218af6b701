#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that the image's tag in build/manifests is that of this tree, that kubeadm takes the files in
# build/manifests/kubeadm, and that what it makes of them is, byte for byte, the static pod that we ship.

source "$(dirname "$0")/lib.sh"

shipped=build/manifests/kube-controller-manager.yaml
version=$(<build/VERSION)
image=$(<build/IMAGE):${version/+/_}
grep -qxF "    image: ${image}" "${shipped}" || die "the image in ${shipped} is not ${image}, as build/IMAGE and build/VERSION have it: mend build/manifests/kubeadm/patches"
base=${version%+*}
for file in init upgrade; do
  grep -qE "^ *kubernetesVersion: ${base}\$" "build/manifests/kubeadm/${file}.yaml" || die "build/manifests/kubeadm/${file}.yaml is not for ${base}"
done

made=$(mktemp)
trap 'rm -f "${made}"' EXIT
hack/update-manifests.sh "${made}"
diff -u "${shipped}" "${made}" || die "kubeadm makes something else: run hack/update-manifests.sh"
