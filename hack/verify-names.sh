#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Proves that what our text names is there: every document that a tracked file cites, every path below the repository's folders that a
# page has in code marks, every function there by its package, and every package of docs/glossary.md with the name to begin reading at.
# What it finds needs a person.

source "$(dirname "$0")/lib.sh"

glossary=docs/glossary.md
problems=0
complain() {
  echo "$*" >&2
  problems=$((problems + 1))
}

# Documents: Markdown files anywhere in our text, below the repository's root, beside the page, or in docs/. What is in a test or in
# quotes, made below _output, or part of a release is no citation.
while IFS=: read -r page line cited; do
  for at in "${cited}" "$(dirname "${page}")/${cited}" "docs/${cited}"; do
    [[ -e ${at} ]] && continue 2
  done
  complain "${page}:${line}: cites ${cited}, which is not in the repository"
done < <(own_files '*.go' '*.sh' '*.md' '*.yaml' Makefile '*/Dockerfile' .ci/run | grep -v '_test\.go$' |
  xargs grep -HnoP '(?<![\w./:@}"-])(?!_output/|https?:|NOTES\.md)[A-Za-z0-9_./-]+\.md\b(?!`? of a release)')

# Documents by a name in capitals and a section: "DESIGN 7", "a row of SCENARIOS".
while IFS=: read -r page line cited; do
  complain "${page}:${line}: cites \"${cited}\", which is not in the repository: say it here, or link to a page in docs/"
done < <(own_files '*.go' '*.sh' '*.md' '*.yaml' Makefile '*/Dockerfile' .ci/run | grep -v '^hack/verify-names\.sh$' |
  xargs grep -HnoP '(?<![\w=${./`-])(DESIGN|SCENARIOS|FINDINGS|COVERAGE|PEERS|UPSTREAM-GAPS|STYLE|ARCHITECTURE|DECISIONS|REQUIREMENTS|ROADMAP)\b(?![=}])|(?<![\w-])[A-Z]{5,} [0-9]\b')

# Paths in code marks: of a folder or file that the first part names, without wildcards and placeholders; pkg/controller is upstream's, and so are all paths of the rehearsal.
while IFS=: read -r page line cited; do
  path=${cited%%:*}
  [[ -e ${path%/} || -e $(dirname "${page}")/${path} || -n $(git ls-files -- "${path}.go" | head -n 1) ]] ||
    complain "${page}:${line}: names ${cited}, which is not in the repository"
done < <(own_files '*.md' | grep -vE '^(CHANGELOG|docs/rebase-rehearsal)\.md$' |
  xargs grep -HnoP '(?<=`)(pkg/(?!controller/)|(cmd|test|hack|build|docs|staging-patches|\.ci)/)[A-Za-z0-9_./+-]+(?=`)')

# Functions and types in code marks, as package.Name or package.Type.Name: the package is one of pkg/, and declares the last name.
while IFS=: read -r page line cited; do
  folder=pkg/${cited%%.*} name=${cited##*.}
  [[ ! -d ${folder} ]] || grep -qsE "^((type|var|const|func) (\([^)]*\) )?|\s+)${name}\b" "${folder}"/*.go ||
    complain "${page}:${line}: names ${cited}, which ${folder} does not declare"
done < <(own_files '*.md' | grep -v '^CHANGELOG\.md$' | xargs grep -HnoP '(?<=`)[a-z]+(\.[A-Za-z]+)+(?=`)')

# Rows of the glossary: | word | meaning | `folder` `Name` |.
rows=0
while IFS='|' read -r _ word _ where _; do
  rows=$((rows + 1))
  if [[ ! ${where} =~ ^\ \`([^\`]+)\`\ \`([A-Za-z]+)\`\ $ ]]; then
    complain "${glossary}:${word}: \"${where}\" is not a folder and a name, each in code marks"
    continue
  fi
  folder=${BASH_REMATCH[1]} name=${BASH_REMATCH[2]}
  [[ -d ${folder} ]] || { complain "${glossary}:${word}: there is no ${folder}" && continue; }
  grep -qsE "^((type|var|const|func) (\([^)]*\) )?|\s+)${name}\b" "${folder}"/*.go || complain "${glossary}:${word}: ${folder} declares no ${name}"
done < <(grep -E '^\| [^-]' "${glossary}" | grep -v '^| Word |' | grep -v '^|---')
((rows > 0)) || die "${glossary} has no rows"

((problems == 0)) || die "${problems} problems"
