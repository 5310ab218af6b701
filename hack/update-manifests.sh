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
  # kubeadm wants a default route; nothing is sent.
  ip link set lo up
  ip address add 192.0.2.1/24 dev lo
  ip route add default dev lo
  mount --bind /proc "${INSIDE}/proc"
  kubeadm() { chroot "${INSIDE}" /kubeadm "$@" >"${INSIDE}/tmp/out" 2>&1 || die "kubeadm $*: $(tail -n 5 "${INSIDE}/tmp/out")"; }
  kubeadm config validate --config /init.yaml
  kubeadm config validate --config /upgrade.yaml
  kubeadm init phase control-plane controller-manager --config /init.yaml
  exit
fi

for tool in ip unshare chroot; do
  command -v "${tool}" >/dev/null || die "${tool} is missing (Debian: iproute2, util-linux, coreutils)"
done
as_root=()
((EUID == 0)) || as_root=(--user --map-root-user)
unshare "${as_root[@]}" --mount --net true || die "kubeadm was not run: this user may not make namespaces; run this as root"

go -C hack/tools/build run . -root "${ROOT}" kubeadm
root=$(mktemp -d)
trap 'rm -rf "${root}"' EXIT
mkdir -p "${root}"/{proc,tmp,etc/kubernetes/patches}
ln "_output/bin/kubeadm" "${root}/kubeadm" 2>/dev/null || cp _output/bin/kubeadm "${root}/kubeadm"
cp build/manifests/kubeadm/*.yaml "${root}"
cp build/manifests/kubeadm/patches/* "${root}/etc/kubernetes/patches"
INSIDE=${root} unshare "${as_root[@]}" --mount --net "$0"
{
  sed -n '1,2p' build/manifests/kubeadm/init.yaml
  echo
  cat "${root}/etc/kubernetes/manifests/kube-controller-manager.yaml"
} >"${into}"
