#!/usr/bin/env bash
# Copyright The Fresh KCM Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs upstream's own unit tests of every package that a patch touches, on the patched tree, with this
# project's gates on and off. client-go knows no such gates: its tests run as upstream runs them, and
# once more without AtomicFIFO, on which the gates depend. PACKAGES='tainteviction cache' runs those alone. What became of each package is kept in RECORDS: with
# RECORDS=test/upstream/results.json hack/test-upstream-unit.sh
# make upstream-page has it on docs/upstream-tests.md.

source "$(dirname "$0")/lib.sh"

mapfile -t packages < <(go -C hack/tools/staging run . -root "${ROOT}" packages)
overlay=_output/upstream-unit
rm -rf "${overlay}" && mkdir -p "${overlay}"

kubernetes=()
clientgo=()
entries=()
for package in "${packages[@]}"; do
  [[ -z ${PACKAGES:-} || " ${PACKAGES} " == *" ${package##*/} "* ]] || continue
  case ${package} in
  k8s.io/client-go/*) clientgo+=("${package}") ;;
  k8s.io/kubernetes/*)
    kubernetes+=("${package}")
    # The seam's own package cannot import what is behind the seam.
    [[ ${package} == */pkg/controller/util/consistency ]] && continue
    name=$(go list -f '{{.Name}}' "${package}")
    dir=$(go list -f '{{.Dir}}' "${package}")
    file=${overlay}/$(tr / _ <<<"${package}").go
    sed "s/^package PACKAGE_test$/package ${name}_test/" hack/upstream-unit-gates.go.tmpl >"${file}"
    entries+=("\"${dir}/zz_fresh_gates_test.go\": \"${ROOT}/${file}\"")
    ;;
  *) die "no rule for the tests of ${package}" ;;
  esac
done
((${#kubernetes[@]} + ${#clientgo[@]})) || die "no patched package is one of ${PACKAGES:-}"

# These two tell the controller of taints, and of a pod's change, that no cache and no server has; its guard looks there. So those get them,
# but for a toleration that was lengthened: upstream's controller takes no notice of it, the guard does if the server has it.
tests=$(go list -f '{{.Dir}}' k8s.io/kubernetes/pkg/controller/tainteviction)/taint_eviction_test.go
entries+=("\"${tests}\": \"${ROOT}/${overlay}/taint_eviction_test.go\"")
sed '/^func Test\(Create\|Update\)Pod(/,/^}/{
s/controller, podIndexer, _ := /controller, podIndexer, nodeIndexer := /
/controller\.taintedNodes = item\.taintedNodes/a\
for name, taints := range item.taintedNodes {\
	nodeIndexer.Add(\&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}})\
}
/podIndexer\.Update(item\.newPod)/a\
if item.description != "lengthening toleration shouldn'"'t"' work" {\
	fakeClientset.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), item.newPod, item.newPod.Namespace)\
}
}' "${tests}" >"${overlay}/taint_eviction_test.go"
printf '{"Replace": {%s}}\n' "$(IFS=,; echo "${entries[*]}")" >"${overlay}/overlay.json"

go -C hack/tools/suites build -o "${ROOT}/_output/tools/suites" .
code=$(git log -1 --format=%h -- pkg staging-patches go.mod)
git diff --quiet HEAD -- pkg staging-patches go.mod || code+=" with changes"
mkdir -p _output/upstream-tests
keep() { _output/tools/suites unit -records "${RECORDS:-_output/upstream-tests/unit.json}" -code "${code}" "$@"; }

if ((${#kubernetes[@]})); then
  echo "--- upstream's unit tests of ${#kubernetes[@]} patched packages of k8s.io/kubernetes, gates on and off"
  # A package is compiled and linked once for both.
  both=${ROOT}/${overlay}/both
  cat >"${both}" <<'BOTH'
#!/usr/bin/env bash
for on in true false; do
  echo "gates ${on}"
  FRESH_KCM_GATES=${on} "$@" || failed=1
done
exit "${failed:-0}"
BOTH
  chmod +x "${both}"
  go test -json -count=1 -timeout=40m -overlay "${overlay}/overlay.json" -exec "${both}" "${kubernetes[@]}" | keep
fi
if ((${#clientgo[@]})); then
  # This test ends its source while the reflector may be about to watch it, which then blocks for good, and goleak reports it: a
  # race of pristine client-go v0.37.0, too, lost each time if the fake's Watch begins 50 ms later. Its broadcaster alone is ended here.
  racy=$(go list -f '{{.Dir}}' k8s.io/client-go/tools/cache)/controller_test.go
  ended=${ROOT}/${overlay}/controller_test.go
  sed '/^func TestStoreResourceVersionWithNonMetaTransform(/,/^}/s/source\.Shutdown()/source.Broadcaster.Shutdown()/' "${racy}" >"${ended}"
  ! cmp -s "${racy}" "${ended}" || die "${racy}: the end of TestStoreResourceVersionWithNonMetaTransform has changed: look whether upstream has mended its race"
  printf '{"Replace": {"%s": "%s"}}\n' "${racy}" "${ended}" >"${overlay}/client-go.json"
  for on in true false; do
    echo "--- upstream's unit tests of ${#clientgo[@]} patched packages of k8s.io/client-go, AtomicFIFO ${on}"
    # Without AtomicFIFO these fail on pristine client-go v0.37.0 too: they expect what it provides.
    skip='^$'
    [[ ${on} == true ]] || skip='^(TestStoreResourceVersion|TestStoreResourceVersionWithNonMetaTransform|TestThreadSafeStoreRV)$'
    arm=$([[ ${on} == true ]] && echo on || echo off)
    KUBE_FEATURE_AtomicFIFO=${on} go test -json -count=1 -timeout=40m -overlay "${overlay}/client-go.json" -skip "${skip}" "${clientgo[@]}" | keep -arm "${arm}"
  done
fi
