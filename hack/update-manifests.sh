#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Writes build/manifests/kube-controller-manager.yaml: what kubeadm itself makes of the files in
# build/manifests/kubeadm. An argument names another file to write.
#
# kubeadm looks at the machine that it runs on (routes, folders with CA certificates), so it gets one of its own: an
# empty root folder and an empty network. That takes root, or a kernel that lets everybody make user namespaces.

source "$(dirname "$0")/lib.sh"

into=${1:-build/manifests/kube-controller-manager.yaml}

if [[ ${INSIDE:-} ]]; then
  own_network
  mount --rbind /proc "${INSIDE}/proc"
  kubeadm() { chroot "${INSIDE}" /kubeadm "$@" >"${INSIDE}/tmp/out" 2>&1 || die "kubeadm $*: $(tail -n 5 "${INSIDE}/tmp/out")"; }
  kubeadm config validate --config /init.yaml
  kubeadm config validate --config /upgrade.yaml
  kubeadm init phase control-plane controller-manager --config /init.yaml
  exit
fi

need_namespaces
root=$(mktemp -d)
trap 'rm -rf --one-file-system "${root}"' EXIT
put_kubeadm "${root}"
mkdir -p "${root}"/{proc,tmp,etc/kubernetes/patches}
cp build/manifests/kubeadm/*.yaml "${root}"
cp build/manifests/kubeadm/patches/* "${root}/etc/kubernetes/patches"
INSIDE=${root} isolated "$0"
{
  sed -n '1,2p' build/manifests/kubeadm/init.yaml
  echo
  cat "${root}/etc/kubernetes/manifests/kube-controller-manager.yaml"
} >"${into}"
