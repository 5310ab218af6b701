#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs our image as the static pod of a real kubelet and containerd, beside a real etcd and kube-apiserver. FILTER names the
# parts to run after the first, such as 'Kill|Gates'. All is kept apart from the machine: processes,
# network and mounts are in namespaces of their own, which end with this script however it ends, /etc and /var are
# overlays, and what is written is in _output/static-pod. Logs stay in _output/static-pod/log.
# On a machine that does not allow that it is SKIPPED, with the reason: nothing is proven then.

source "$(dirname "$0")/lib.sh"

out=${ROOT}/_output/static-pod

# inside runs in the namespaces.
inside() {
  own_network
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

# need_node skips unless this machine can run a node.
need_node() {
  [[ $(uname -s) == Linux ]] || skip "it takes Linux"
  ((EUID == 0)) || skip "it takes root: kubelet and containerd do"
  need runc=runc ip=iproute2 unshare=util-linux setpriv=util-linux mount=mount
  [[ -n $(cgroup_roots) ]] || skip "no cgroups are mounted"
  local root probe said
  while read -r root; do
    mkdir "${root}/${cgroup}" 2>/dev/null || skip "no cgroup can be made in ${root}"
  done < <(cgroup_roots)
  # The kubelet's containers need these controllers. In version 1 each has a folder of its own.
  root=$(awk '{root[$3] = $2} END {if (!("cgroup" in root)) print root["cgroup2"]}' /proc/mounts)
  if [[ ${root} ]] && ! echo "+cpu +memory +pids" 2>/dev/null >"${root}/cgroup.subtree_control"; then
    skip "${root} does not give cpu, memory and pids to the cgroups below it"
  fi
  state=$(mktemp -d "${out}/state.XXXXXX")
  mkdir "${state}/upper" "${state}/work"
  probe="mount -t overlay probe -o lowerdir=/etc,upperdir=${state}/upper,workdir=${state}/work /mnt"
  said=$(unshare --mount --pid --net --fork bash -c "${probe}" 2>&1) || skip "no namespaces with overlays can be made: ${said##*$'\n'}"
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

STATIC_POD_FILTER=${FILTER:-} run_tests ./test/e2e/staticpod TestFilter

cgroup=fresh-kcm-static-pod.$$
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
rm -rf "${out}"
mkdir -p "${out}/log"
need_node

echo "building what the node is made of; without a cache that takes minutes"
go -C hack/tools/build run . -root "${ROOT}" kubeadm kubelet containerd containerd-shim-runc-v2 ctr
go test -c -o "${out}/staticpod.test" ./test/e2e/staticpod
go build -o "${out}/pause" ./test/e2e/staticpod/pause
image() { go -C hack/tools/release run . binary-image "$@"; }
base=$(sed 's/+.*//' build/VERSION)
image localhost/fresh-kcm/pause:test "${out}/pause" /pause "${out}/pause.tar"
image "registry.k8s.io/kube-controller-manager:${base}" "${ROOT}/_output/bin/upstream/kube-controller-manager" /usr/local/bin/kube-controller-manager "${out}/stock.tar"
make image ARCH="$(go env GOARCH)"
cp "_output/image/kube-controller-manager-linux-$(go env GOARCH).tar" "${out}/ours.tar"

STATIC_POD_INSIDE="${state} ${cgroup}" setpriv --pdeathsig KILL unshare --mount --pid --net --fork --kill-child --mount-proc "$0" &
namespaces=$!
wait "${namespaces}"
