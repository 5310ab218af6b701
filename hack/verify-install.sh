#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that the steps of docs/install.md for a kubeadm cluster that runs, and those to roll back, do what the page says.
# They are run as they are written, with kubeadm itself, on an /etc and a network of their own, which takes root or user
# namespaces. kubectl is played: it answers with the configuration that kubeadm would have stored. And it proves that the
# files that the page names are there. What it finds needs a person.

source "$(dirname "$0")/lib.sh"

page=${ROOT}/docs/install.md

# steps prints the first shell block below a heading of the page.
steps() {
  awk -v heading="## $1" '$0 == heading { found = 1 } found && /^```$/ { exit } inside; found && /^```sh$/ { inside = 1 }' "${page}"
}

if [[ ${INSIDE:-} ]]; then
  own_network
  # An /etc with all that the machine's has, apart from Kubernetes.
  mkdir "${INSIDE}/etc"
  mount --rbind /etc "${INSIDE}/etc"
  mount -t tmpfs etc /etc
  ln -s "${INSIDE}"/etc/* /etc
  rm -f /etc/kubernetes
  manifest=/etc/kubernetes/manifests/kube-controller-manager.yaml
  # shellcheck disable=SC2317 # the steps of the page call it
  kubectl() { kubeadm config print init-defaults 2>/dev/null | awk 'configuration; /^---$/ { configuration = 1 }' | sed "s/^kubernetesVersion:.*/kubernetesVersion: ${BASE}/"; }
  image() { sed -n 's/^ *image: //p' "${manifest}"; }
  follow() {
    local text
    text=$(steps "$1")
    [[ -n ${text} ]] || die "docs/install.md has no steps below \"$1\""
    eval "${text}" >"${INSIDE}/out" 2>&1 || die "docs/install.md: the steps of \"$1\" fail: $(tail -n 5 "${INSIDE}/out")"
  }
  cd "${INSIDE}"
  PATH=${INSIDE}:${PATH}
  kubeadm init phase control-plane controller-manager --kubernetes-version "${BASE}" >/dev/null 2>&1 || die "kubeadm makes no stock static pod"
  stock=$(image)
  follow "kubeadm: a cluster that runs"
  ours=$(sed -n 's/^ *image: //p' manifests/kubeadm/patches/kube-controller-manager+strategic.yaml)
  [[ -n ${ours} && $(image) == "${ours}" ]] || die "docs/install.md: after the steps the static pod has the image $(image), not ${ours}"
  [[ $(ls /etc/kubernetes/manifests) == kube-controller-manager.yaml ]] || die "docs/install.md: the steps leave more than the static pod in the manifests folder"
  follow "Roll back"
  [[ $(image) == "${stock}" ]] || die "docs/install.md: after the rollback the static pod has the image $(image), not ${stock}"
  exit
fi

while read -r file; do
  [[ -e build/${file} ]] || die "docs/install.md names ${file}: there is no build/${file}"
done < <(grep -oE 'manifests/[a-z0-9/+.-]+\.yaml' "${page}" | grep -v '^manifests/kube-controller-manager.yaml/' | sort -u)

need_namespaces
folder=$(mktemp -d)
trap 'rm -rf --one-file-system "${folder}"' EXIT
cp -r build/manifests "${folder}/manifests"
put_kubeadm "${folder}"
version=$(<build/VERSION)
INSIDE=${folder} BASE=${version%+*} isolated "$0"
