#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Writes docs/packages.md: the packages of the root module, drawn from their imports. An argument names another file to write.

source "$(dirname "$0")/lib.sh"

into=${1:-docs/packages.md}

# table prints the packages that match, each one floor above the highest that it imports, as a graph, as rows with floors, or as a list.
table() { # graph|floors|list, patterns
  local form=$1 module=github.com/fresh-kcm/fresh-kcm
  shift
  go list -f '{{if .GoFiles}}{{.ImportPath}}|{{.Doc}}|{{join .Imports " "}}{{end}}' "$@" | awk -F'|' -v form="${form}" -v module="${module}/" '
    function short(path) { sub("^" module, "", path); return path }
    { p = short($1); name[++n] = p; doc[p] = $2; sub(/^(Package|Command) [^ ]+ /, "", doc[p]); imported = split($3, all, " ")
      for (i = 1; i <= imported; i++) if (index(all[i], module) == 1) uses[p] = uses[p] " " short(all[i]) }
    END {
      for (i = 1; i <= n; i++) ours[name[i]] = 1
      do {
        changed = 0
        for (i = 1; i <= n; i++) {
          m = split(uses[name[i]], all, " ")
          for (j = 1; j <= m; j++) if (all[j] in ours && floor[name[i]] < floor[all[j]] + 1) { floor[name[i]] = floor[all[j]] + 1; changed = 1 }
        }
      } while (changed)
      for (i = 1; i <= n; i++) if (floor[name[i]] > top) top = floor[name[i]]
      for (f = top; f >= 0; f--) for (i = 1; i <= n; i++) {
        p = name[i]
        if (floor[p] != f) continue
        m = split(uses[p], all, " "); list = ""
        for (j = 1; j <= m; j++) {
          if (form == "graph" && all[j] in ours) printf "  %s --> %s\n", p, all[j]
          list = list (list == "" ? "" : ", ") "`" all[j] "`"
        }
        if (form == "list") printf "| [%s](../%s) | %s |\n", p, p, doc[p]
        if (form == "floors") printf "| %d | [%s](../%s) | %s | %s |\n", f, p, p, doc[p], list
      }
    }'
}

{
  cat <<'HEAD'
# Packages

Drawn from the imports by `hack/update-packages.sh`; `hack/verify-packages.sh` proves it current. A package stands one floor above the highest
that it imports, so nothing imports upward. What each promises is in its `doc.go`; the [glossary](glossary.md) has the words.

## The product

```mermaid
graph TD
HEAD
  table graph ./pkg/... ./cmd/kube-controller-manager
  cat <<'ROWS'
```

| Floor | Package | What it does | Imports |
|---|---|---|---|
ROWS
  table floors ./pkg/... ./cmd/kube-controller-manager
  cat <<'TESTS'

## The lab and the tests

Those that stand on the others come first. Packages of tests alone are not shown: [README](../README.md#how-the-pieces-fit) has their folders.

| Package | What it does |
|---|---|
TESTS
  table list ./cmd/staleness-lab/... ./test/...
} >"${into}"
