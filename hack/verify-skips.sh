#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that the checks that run kubeadm, and shellcheck, are skipped, with a line that says why, where the machine lacks a tool or
# forbids namespaces, and that CI does not let them be skipped for a tool that it can install. What it finds needs a person.

source "$(dirname "$0")/lib.sh"

# expect STATUS PATTERN COMMAND...: what the command exits with, and the only line that it writes.
expect() {
  local status=0 said
  said=$("${@:3}" 2>&1) || status=$?
  [[ ${status} == "$1" && ${said} =~ ^$2$ ]] || die "\"${*:3}\" exited with ${status} and said \"${said}\", want $1 and \"$2\""
}

# no_namespaces runs a command where the kernel refuses every further namespace.
no_namespaces() {
  local forbid='for kind in user mnt net; do echo 0 >/proc/sys/user/max_${kind}_namespaces; done; exec "$@"'
  unshare --user --map-root-user bash -c "${forbid}" bash "$@"
}

# All that is in PATH but for ip, and an apt-get.
bin=$(mktemp -d)
trap 'rm -rf "${bin}"' EXIT
for dir in ${PATH//:/ }; do
  ln -s "${dir}"/* "${bin}" 2>/dev/null || true # one that is there comes first in PATH
done
rm -f "${bin}/ip" "${bin}/shellcheck"
[[ -e ${bin}/apt-get ]] || ln -s "$(type -P true)" "${bin}/apt-get"
for check in hack/verify-manifests.sh hack/verify-install.sh hack/verify-shellcheck.sh; do
  tool=ip package=iproute2
  [[ ${check} != *shellcheck* ]] || tool=shellcheck package=shellcheck
  lacks="${tool} is missing .Debian: apt-get install ${package}."
  expect "${not_allowed}" "SKIPPED: ${lacks}" env -u CI PATH="${bin}" "${check}"
  expect "${not_allowed}" "SKIPPED: ${lacks}" env CI=true INSTALL_FAILED=true PATH="${bin}" "${check}"
  if ((EUID == 0)); then
    expect 1 ".*: ${lacks}" env -u INSTALL_FAILED CI=true PATH="${bin}" "${check}"
  fi
  if [[ ${tool} == ip ]] && command -v ip >/dev/null && unshare --user --map-root-user true 2>/dev/null; then
    expect "${not_allowed}" "SKIPPED: no namespaces .*" no_namespaces "${check}"
  fi
done
