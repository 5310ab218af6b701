#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that every relative link in our Markdown leads to a file, and to a heading of it where it
# names one, and that every page in docs/ can be reached from README.md. What it finds needs a person.

source "$(dirname "$0")/lib.sh"

problems=0
complain() {
  echo "$*" >&2
  problems=$((problems + 1))
}

declare -A linked
while read -r page; do
  while read -r target; do
    file=${target%%#*}
    anchor=""
    [[ ${target} == *#* ]] && anchor=${target#*#}
    path=${page}
    [[ -n ${file} ]] && path=$(realpath -m --relative-to=. "$(dirname "${page}")/${file}")
    if [[ ! -e ${path} ]]; then
      complain "${page}: link to ${target}: there is no ${path}"
    elif [[ -n ${anchor} && ${path} == *.md ]] && ! grep -qxF -- "${anchor}" <(anchors "${path}"); then
      complain "${page}: link to ${target}: ${path} has no such heading"
    fi
    linked[${path}]=1
  done < <(grep -oE '\]\([^)]+\)' "${page}" | sed -E 's/^\]\(//; s/\)$//; s/ ".*$//' | grep -vE '^(https?:|mailto:)' || true)
done < <(own_files '*.md')

while read -r page; do
  [[ -n ${linked[${page}]-} ]] || complain "${page}: no page links to it"
done < <(own_files 'docs/*.md')

((problems == 0)) || die "${problems} problems"
