#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that the go.mod files are tidy, that k8s.io/kubernetes and its staging modules have one
# version, patched ones are replaced by _output/staging and the others by published modules only, and
# that no dependency differs from what upstream's own go.mod pins.

source "$(dirname "$0")/lib.sh"

problems=0
complain() {
  echo "$*" >&2
  problems=$((problems + 1))
}

while read -r module; do
  go -C "${module}" mod tidy -diff >/dev/null 2>&1 || complain "${module}/go.mod is not tidy: run hack/update-mod.sh"
done < <(all_modules)

# lines prints a module's require and replace lines without the keyword and the comment.
lines() {
  sed -E 's/^(require|replace)? ?\(?//; s#//.*##' "$1/go.mod"
}

# version_of prints the version of a path that a module requires.
version_of() {
  lines "$1" | awk -v path="$2" '$1 == path && NF == 2 && !found {print $2; found = 1}'
}

base=$(version_of . k8s.io/kubernetes)
staging=v0.${base#v1.}
upstream=$(cd / && go mod download -json "k8s.io/kubernetes@${base}" | awk -F'"' '$2 == "GoMod" {print $4}')

for module in . hack/tools/upstream hack/tools/e2e; do
  while read -r from _ to version; do
    if [[ ${to} == ./* ]]; then
      [[ ${module} == . && ${to} == ./_output/staging/* ]] || complain "${module}/go.mod: ${from} is replaced by the folder ${to}"
    elif [[ ${to} != "${from}" || ${version} != "${staging}" ]]; then
      complain "${module}/go.mod: ${from} is replaced by ${to} ${version}, want ${from} ${staging}"
    fi
  done < <(lines "${module}" | grep '=>')
  version=$(version_of "${module}" k8s.io/kubernetes)
  [[ ${version} == "${base}" ]] || complain "${module}/go.mod requires k8s.io/kubernetes ${version}, the root go.mod ${base}"
  # A drop-in is built from what upstream is built from.
  while read -r path ours theirs; do
    complain "${module}/go.mod: ${path} ${ours}, upstream ${base} pins ${theirs}"
  done < <(join <(lines "${module}" | awk 'NF == 2 && $2 ~ /^v/ {print $1, $2}' | sort -u) <(awk '/^\t/ && $2 ~ /^v/ && $2 != "v0.0.0" {print $1, $2}' "${upstream}" | sort -u) | awk '$2 != $3')
done

((problems == 0)) || die "${problems} problems"
echo "$(all_modules | wc -l) modules tidy; base ${base}, staging ${staging}; dependencies as upstream pins them"
