#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs our image as the static pod of a real kubelet and containerd, beside a real etcd and kube-apiserver. FILTER is a
# regular expression of the parts to run after the first, such as 'Kill|Gates'. All is kept apart from the machine: processes,
# network and mounts are in namespaces of their own, which end with this script however it ends, /etc and /var are
# overlays, and what is written is in _output/static-pod. Logs stay in _output/static-pod/log.
# On a machine that does not allow that it says why, and that nothing was proven.

source "$(dirname "$0")/lib.sh"

out=${ROOT}/_output/static-pod

# inside runs in the namespaces.
inside() {
  ip link set lo up
  # kubelet and kubeadm want an address of the node and a default route. Nothing leaves this network.
  ip address add 192.0.2.1/24 dev lo
  ip route add default dev lo
  for folder in etc var; do
    mkdir -p "${state}/${folder}" "${state}/work-${folder}"
    mount -t overlay "${folder}" -o "lowerdir=/${folder},upperdir=${state}/${folder},workdir=${state}/work-${folder}" "/${folder}"
  done
  mount -t tmpfs run /run
  mkdir -p "${state}/tmp"
  # Not with exec: this shell is the first process of its namespace, and reaps those that nobody waits for.
  TMPDIR=${state}/tmp STATIC_POD_ROOT=${ROOT} STATIC_POD_DIR=${out} STATIC_POD_STATE=${state} STATIC_POD_CGROUP=/${cgroup} \
    "${out}/staticpod.test" -test.v -test.failfast -test.timeout=20m -test.run="TestStaticPod/^(TamperedImage|StockAsKubeadmMakesIt|${FILTER:-.*})\$"
}

# obstacle says why this machine cannot run it, or nothing.
obstacle() {
  ((EUID == 0)) || { echo "it takes root: kubelet and containerd do"; return; }
  [[ $(uname -s) == Linux ]] || { echo "it takes Linux"; return; }
  local tool
  for tool in runc ip unshare setpriv mount; do
    command -v "${tool}" >/dev/null || { echo "${tool} is missing (Debian: apt-get install runc iproute2 util-linux)"; return; }
  done
  grep -qw overlay /proc/filesystems || { echo "the kernel has no overlay file system"; return; }
  local root
  [[ -n $(cgroup_roots) ]] || { echo "no cgroups are mounted"; return; }
  while read -r root; do
    mkdir "${root}/${cgroup}" 2>/dev/null || { echo "no cgroup can be made in ${root}"; return; }
  done < <(cgroup_roots)
  unshare --mount --pid --net --fork mount -t tmpfs test /mnt 2>/dev/null || { echo "no namespaces can be made, or nothing be mounted in them"; return; }
}

# cgroup_roots lists where cgroups are mounted: one folder for version 2, one for each controller for version 1.
cgroup_roots() { awk '$3 == "cgroup" || $3 == "cgroup2" {print $2}' /proc/mounts; }

cleanup() {
  local result=$?
  trap - EXIT INT TERM
  if [[ -n ${namespaces:-} ]]; then
    kill -KILL "${namespaces}" 2>/dev/null || true # the kernel kills all that is in them
    wait "${namespaces}" 2>/dev/null || true
  fi
  local root
  while read -r root; do
    # The kernel lets go of the cgroups of processes that it has just killed a moment later.
    for _ in {1..50}; do
      [[ -e ${root}/${cgroup} ]] || break
      find "${root}/${cgroup}" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
    done
    [[ ! -e ${root}/${cgroup} ]] || echo "left behind: ${root}/${cgroup}" >&2
  done < <(cgroup_roots)
  [[ ! -d ${state:-} ]] || rm -rf --one-file-system "${state}"
  exit "${result}"
}

if [[ ${STATIC_POD_INSIDE:-} ]]; then
  read -r state cgroup <<<"${STATIC_POD_INSIDE}"
  inside
  exit
fi

cgroup=fresh-kcm-static-pod.$$
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
reason=$(obstacle)
if [[ -n ${reason} ]]; then
  echo "SKIPPED, nothing was proven about the static pod: ${reason}"
  exit 0
fi

echo "building what the node is made of; without a cache that takes minutes"
go -C hack/tools/build run . -root "${ROOT}" kubeadm kubelet containerd containerd-shim-runc-v2 ctr
rm -rf "${out}"
mkdir -p "${out}/log"
go test -c -o "${out}/staticpod.test" ./test/e2e/staticpod
go build -o "${out}/pause" ./test/e2e/staticpod/pause
go -C hack/tools/testimage build -o "${out}/testimage" .
# image NAME BINARY PATH FILE: how what is not ours becomes an image.
image() { "${out}/testimage" -name "$1" -binary "$2" -path "$3" -out "${out}/$4"; }
base=$(sed 's/+.*//' build/VERSION)
image localhost/fresh-kcm/pause:test "${out}/pause" /pause pause.tar
image "registry.k8s.io/kube-controller-manager:${base}" _output/bin/upstream/kube-controller-manager /usr/local/bin/kube-controller-manager stock.tar
make image ARCH="$(go env GOARCH)"
cp "_output/image/kube-controller-manager-linux-$(go env GOARCH).tar" "${out}/ours.tar"

state=$(mktemp -d "${out}/state.XXXXXX")
STATIC_POD_INSIDE="${state} ${cgroup}" setpriv --pdeathsig KILL unshare --mount --pid --net --fork --kill-child --mount-proc "$0" &
namespaces=$!
wait "${namespaces}"
