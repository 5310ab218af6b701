# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# What the scripts in this folder share; source it, do not run it.

set -o errexit -o nounset -o pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "${ROOT}"

export GOWORK=off LC_ALL=C
# As the product is built, so that tests, checks and builds share one cache of compiled packages.
export GOFLAGS="-trimpath -buildvcs=false" CGO_ENABLED=0

# Modules with code of our own; the others under hack/tools only pin what is built from them.
own_modules=(. hack/tools/build hack/tools/release hack/tools/staging hack/tools/suites hack/tools/testimage)

# all_modules lists every module of the repository, the root first.
all_modules() {
  echo .
  git ls-files --cached --others --exclude-standard 'hack/tools/*/go.mod' | xargs -n1 dirname
}

# own_files lists the files that git knows or would add, by pattern.
own_files() {
  git ls-files --cached --others --exclude-standard -- "$@" | while read -r f; do [[ -e ${f} ]] && echo "${f}"; done
}

# anchors prints a page's headings in the form that links use.
anchors() {
  grep -E '^#+ ' "$1" | sed -E 's/^#+ +//; s/[`*]//g' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

die() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}
