# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# What the scripts in this folder share; source it, do not run it.
# shellcheck shell=bash

set -o errexit -o nounset -o pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "${ROOT}"

export GOWORK=off LC_ALL=C
# As the product is built, so that tests, checks and builds share one cache of compiled packages.
export GOFLAGS="-trimpath -buildvcs=false" CGO_ENABLED=0

# Modules with code of our own; the others under hack/tools only pin what is built from them.
# shellcheck disable=SC2034 # the scripts use it
own_modules=(. hack/tools/bench hack/tools/build hack/tools/lint hack/tools/release hack/tools/slo hack/tools/staging hack/tools/suites)

# all_modules lists every module of the repository, the root first.
all_modules() {
  echo .
  git ls-files --cached --others --exclude-standard 'hack/tools/*/go.mod' | xargs -n1 dirname
}

# own_files lists the files that git knows or would add, by pattern.
own_files() {
  git ls-files --cached --others --exclude-standard -- "$@" | while read -r f; do [[ -e ${f} ]] && echo "${f}"; done
}

# about_added_files prints, of what a checker said on its input, the findings in files that the patches add to
# upstream's packages: what upstream has is not ours to mend.
about_added_files() {
  grep -F -f <(go -C hack/tools/staging run . -root "${ROOT}" files | sed 's/$/:/') || true
}

# patched_packages lists the packages of upstream that the patches touch, which must be there.
patched_packages() {
  local packages
  packages=$(go -C hack/tools/staging run . -root "${ROOT}" packages)
  # shellcheck disable=SC2086 # one argument for each
  go list ${packages}
}

# anchors prints a page's headings in the form that links use.
anchors() {
  grep -E '^#+ ' "$1" | sed -E 's/^#+ +//; s/[`*]//g' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

# run_tests PACKAGE TEST... runs these tests of a package, and dies if one is not there: go test is content with no test at all.
run_tests() {
  local package=$1 output test
  shift
  output=$(go test -count=1 -v -run "^($(IFS='|' && echo "$*"))\$" "${package}" 2>&1) || die "${output}"
  for test in "$@"; do
    grep -q "^=== RUN   ${test}\$" <<<"${output}" || die "${package} has no test ${test}"
  done
  tail -n 1 <<<"${output}"
}

die() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# What a check exits with that this machine does not allow: hack/verify.sh reports it as skipped, with its last line.
not_allowed=77

# skip ends a check that this machine does not allow.
skip() {
  echo "SKIPPED: $*"
  exit "${not_allowed}"
}

# can_install says whether .ci/run can install Debian packages here, and has not tried in vain.
can_install() { ((EUID == 0)) && command -v apt-get >/dev/null && [[ ! ${INSTALL_FAILED:-} ]]; }

# need TOOL=PACKAGE... skips a check that lacks a tool. In CI that is an error where the tool can be installed.
need() {
  local pair reason
  for pair in "$@"; do
    command -v "${pair%=*}" >/dev/null && continue
    reason="${pair%=*} is missing (Debian: apt-get install ${pair#*=})"
    if [[ ${CI:-} ]] && can_install; then die "${reason}"; fi
    skip "${reason}"
  done
}

# own_network makes a network without a way out, for kubeadm and kubelet: they want an address and a default route.
own_network() {
  ip link set lo up
  ip address add 192.0.2.1/24 dev lo
  ip route add default dev lo
}

# need_namespaces skips a check unless isolated can run a command: as root, or in a user namespace.
need_namespaces() {
  need ip=iproute2 unshare=util-linux mount=mount chroot=coreutils
  local probe way said
  probe="set -e; $(declare -f own_network); own_network; mount -t tmpfs probe /tmp; mount --rbind /proc /tmp"
  for way in "" "--user --map-root-user"; do
    read -ra isolation <<<"unshare ${way} --mount --net"
    said=$("${isolation[@]}" bash -c "${probe}" 2>&1) && return
  done
  skip "no namespaces with mounts and a network of their own can be made: ${said##*$'\n'}"
}

# isolated runs a command with mounts and a network of its own.
isolated() { "${isolation[@]}" "$@"; }

# put_kubeadm builds kubeadm and puts it into a folder.
put_kubeadm() {
  go -C hack/tools/build run . -root "${ROOT}" kubeadm
  ln _output/bin/kubeadm "$1/kubeadm" 2>/dev/null || cp _output/bin/kubeadm "$1/kubeadm"
}
