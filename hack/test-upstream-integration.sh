#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs upstream's own integration tests, unmodified, on stock Kubernetes and on the patched tree with this
# project's gates off and on. PACKAGES and ARMS (stock off on) choose; FLAGS go to the test binaries, as in
# PACKAGES=daemonset ARMS=on FLAGS=-test.run=TestTaintedNode hack/test-upstream-integration.sh
# What became of each package and arm replaces the last such run in test/upstream/results.json.
# A test that fails on a patched arm, and again alone, but not on stock fails the run.

source "$(dirname "$0")/lib.sh"

read -ra packages <<<"${PACKAGES:-certificates cronjob daemonset deployment disruption dra dra/all endpoints endpointslice evictions garbagecollector job node podautoscaler podgc quota replicaset replicationcontroller serviceaccount servicecidr staleness statefulset storageversionmigrator volume}"
read -ra selected <<<"${ARMS:-stock off on}"
read -ra flags <<<"${FLAGS:-}"

out=${ROOT}/_output/upstream-tests
kubernetes=${ROOT}/_output/staging/kubernetes
mkdir -p "${out}/overlay" "${out}/bin/stock" "${out}/bin/patched"
[[ -x _output/bin/etcd ]] || die "_output/bin/etcd is missing: run make build"

# The two helpers that start an apiserver for a test hand its client configuration to test/upstream. The
# overlay is made of the tree that is tested, with one line added to each; the tests stay as they are.
entries=()
hook() { # FILE LINE CALL: adds the call before the one line that is LINE
  [[ $(grep -cxF "$2" "${kubernetes}/$1") == 1 ]] || die "$1 has not one line '$2': upstream has changed, adapt this script"
  local made=${out}/overlay/${1//\//_} package
  awk -v line="$2" -v call="$3" '$0 == line {print call} {print}' "${kubernetes}/$1" >"${made}"
  package=$(awk '$1 == "package" {print $2; exit}' "${kubernetes}/$1")
  printf 'package %s\n\nimport "github.com/fresh-kcm/fresh-kcm/test/upstream"\n\nvar freshServer = upstream.Server\n' "${package}" >"${made%.go}_fresh.go"
  entries+=("\"${kubernetes}/$1\": \"${made}\"" "\"$(dirname "${kubernetes}/$1")/fresh.go\": \"${made%.go}_fresh.go\"")
}
hook cmd/kube-apiserver/app/testing/testserver.go $'\tresult.ServerOpts = s' $'\tfreshServer(tCtx, result.ClientConfig)'
hook test/integration/framework/test_server.go $'\tkubeAPIServerClient, err := client.NewForConfig(kubeAPIServerClientConfig)' $'\tfreshServer(ctx, kubeAPIServerClientConfig)'
printf '{"Replace": {%s}}\n' "$(IFS=,; echo "${entries[*]}")" >"${out}/overlay/overlay.json"

echo "--- building the tests of ${#packages[@]} packages for ${selected[*]}"
paths=("${packages[@]/#/k8s.io/kubernetes/test/integration/}")
# Without debugging information a binary has 120 MB. The tests import modules that nothing else needs: copies of go.mod and go.sum have them.
compile() { # ARM FOLDER [FLAG...]
  local module=${out}/module/$1 folder=$2
  mkdir -p "${module}" && cp "${folder}"/go.{mod,sum} "${module}"
  go test -C "${folder}" -c -mod=mod -modfile="${module}/go.mod" -ldflags='-s -w' -o "${out}/bin/$1/" "${@:3}" "${paths[@]}"
}
[[ " ${selected[*]} " != *" stock "* ]] || compile stock hack/tools/upstream
[[ " ${selected[*]} " != *" o"* ]] || compile patched . -overlay "${out}/overlay/overlay.json"
go -C hack/tools/suites build -o "${ROOT}/_output/tools/suites" .

code=$(git log -1 --format=%h -- pkg staging-patches go.mod)
git diff --quiet HEAD -- pkg staging-patches go.mod || code+=" with changes"

# The tests run in their packages' folders of the published module, which is what they read files of. They look for the
# apiserver's certificates where the binary was built, and by these two variables without that. It is a copy, as a server
# with addresses of its own leaves its certificate there.
source=$(go -C hack/tools/upstream list -m -f '{{.Dir}}' k8s.io/kubernetes)
certificates=cmd/kube-apiserver/app/testing/testdata
export TEST_SRCDIR=${out} TEST_WORKSPACE=source PATH="${ROOT}/_output/bin:${PATH}"
copy=${out}/source/k8s.io/${source##*/k8s.io/}/${certificates}
rm -rf "${out}/source" && mkdir -p "${copy}" && cp "${source}/${certificates}"/* "${copy}" && chmod -R u+w "${copy}"
for package in "${packages[@]}"; do
  for arm in "${selected[@]}"; do
    case ${arm} in
    stock) binary=stock gates=false ;;
    off) binary=patched gates=false ;;
    on) binary=patched gates=true ;;
    *) die "there is no arm ${arm}: stock, off and on are" ;;
    esac
    (cd "${source}/test/integration/${package}" && FRESH_KCM_GATES=${gates} "${ROOT}/_output/tools/suites" run -records "${ROOT}/test/upstream/results.json" -results "${out}/results" -arm "${arm}" -package "${package}" -code "${code}" \
      -- "${out}/bin/${binary}/${package##*/}.test" -test.v=test2json -test.paniconexit0 -test.timeout=60m "${flags[@]}")
  done
done
_output/tools/suites regressions -records test/upstream/results.json -choice hack/upstream-e2e.txt
