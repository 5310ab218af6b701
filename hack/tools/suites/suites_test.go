// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lines makes test2json's lines of "action test output".
func lines(events ...[3]string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(`{"Action":"` + e[0] + `","Test":"` + e[1] + `","Output":"` + e[2] + `\n","Elapsed":1.5}` + "\n")
	}
	return b.String()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestParse(t *testing.T) {
	r, err := parse(strings.NewReader(lines(
		[3]string{"run", "TestA"}, [3]string{"run", "TestA/x"}, [3]string{"output", "TestA/x", "fresh-kcm: wired daemonset"},
		[3]string{"pass", "TestA/x"}, [3]string{"run", "TestA/y"}, [3]string{"fail", "TestA/y"}, [3]string{"fail", "TestA"},
		[3]string{"run", "TestB"}, [3]string{"output", "TestB", "    b_test.go:7: no kubelet here"}, [3]string{"output", "TestB", "--- SKIP: TestB (0.00s)"}, [3]string{"skip", "TestB"},
		[3]string{"run", "TestC"}, [3]string{"run", "TestC/x"}, [3]string{"pass", "TestC/x"}, [3]string{"fail", "TestC"},
		[3]string{"run", "TestD"}, [3]string{"run", "TestD/x"}, [3]string{"fail", ""},
	)))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"TestA/x": "pass", "TestA/y": "fail", "TestB": "skip", "TestC": "fail", "TestC/x": "pass", "TestD/x": "run"}
	if got := r.leaves(); !maps.Equal(got, want) {
		t.Errorf("leaves %v, want %v", got, want)
	}
	if got := r.failedTop(); !slices.Equal(got, []string{"TestA", "TestC", "TestD"}) {
		t.Errorf("failed at the top: %v", got)
	}
	if r.Why["TestB"] != "no kubelet here" || !slices.Equal(r.Wired, []string{"daemonset"}) {
		t.Errorf("why %q, wired %q", r.Why, r.Wired)
	}
}

// fixture is what is kept of a run on stock and one with the gates on: TestA fails on both, TestB only with the
// gates on, TestC there only once.
func fixture(t *testing.T) (*records, *choice) {
	dir := t.TempDir()
	path := filepath.Join(dir, "results.json")
	result := func(text string) *result {
		r, err := parse(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	keepRun := func(arm string, seconds int, first, again string) {
		m := meta{Code: "abc", Seconds: seconds, Failure: "exit status 1"}
		if err := keep(path, func(k *records) { put(k.Packages, "job", arm, result(first).record(m, result(again))) }); err != nil {
			t.Fatal(err)
		}
	}
	keepRun("on", 1, lines([3]string{"pass", "TestA"}), "") // an earlier run, which the next one replaces
	keepRun("stock", 12, lines([3]string{"fail", "TestA"}, [3]string{"pass", "TestB"}, [3]string{"pass", "TestC"}), lines([3]string{"fail", "TestA"}))
	keepRun("on", 13, lines([3]string{"fail", "TestA"}, [3]string{"fail", "TestB"}, [3]string{"fail", "TestC"}),
		lines([3]string{"fail", "TestA"}, [3]string{"fail", "TestB"}, [3]string{"pass", "TestC"}))
	spec := func(name, state, message string) string {
		return `{"ContainerHierarchyTexts":["[sig-x] Suite"],"LeafNodeType":"It","LeafNodeText":"` + name + `","State":"` + state + `","Failure":{"Message":"` + message + `"}}`
	}
	other := `{"ContainerHierarchyTexts":["Other"],"LeafNodeType":"It","LeafNodeText":"z","State":"skipped"}`
	for _, arm := range []string{"stock", "on"} {
		failing := map[string]string{"stock": "passed", "on": "failed"}[arm]
		specs, err := parseSpecs(strings.NewReader(`[{"SpecReports":[` + strings.Join([]string{spec("a", "passed", ""), spec("b", failing, "boom in /home/a/b.c/kubectl --kubeconfig=/tmp/x-1/admin.conf"), spec("webhook", "failed", "not known yet"), spec("d", "skipped", "needs two nodes"), other}, ",") + `]}]`))
		if err != nil {
			t.Fatal(err)
		}
		if err := keep(path, func(k *records) {
			put(k.Suites, "sig-x", arm, recordSuites(meta{Code: "abc", Seconds: 9}, "sig-x", specs, nil))
		}); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "choice.txt"), "# all\nrun\tsig-x\nskip\twebhook\tneeds a pod that answers\n")
	kept, err := readRecords(path)
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := readChoice(filepath.Join(dir, "choice.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return kept, chosen
}

func TestPage(t *testing.T) {
	kept, chosen := fixture(t)
	kept.Packages["job"]["stock"].Note = "it failed before"
	var got bytes.Buffer
	if err := page(&got, kept, chosen); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| job | 2 passed, 1 failed (12 s) | not run | 0 passed, 3 failed (13 s, abc) | none asks for one |",
		"- job, stock: it failed before\n- job, stock: `TestA` failed; alone it failed",
		"- job, patched, gates on: `TestC` failed; alone it passed",
		"| [sig-x] Suite | 2 passed, 1 skipped, 1 left out | not run | 1 passed, 1 failed, 1 skipped, 1 left out |",
		"- `[sig-x] Suite webhook`: needs a pod that answers",
		"- patched, gates off: what matches `sig-x`\n",
		"- `[sig-x] Suite d`: needs two nodes",
		"- patched, gates on: `[sig-x] Suite b` failed: boom in kubectl --kubeconfig=admin.conf; alone it was not run",
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("no %q in\n%s", want, got.String())
		}
	}
	if strings.Contains(got.String(), "Other") {
		t.Error("specs that nobody asked for are on the page")
	}
	err := regressions(kept, chosen)
	if err == nil {
		t.Fatal("no regressions")
	}
	want := "failures that stock does not have:\n  [sig-x] Suite b on patched, gates on\n  job TestB on patched, gates on"
	if err.Error() != want {
		t.Errorf("got %s\nwant %s", err, want)
	}
}

func TestUnit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	line := func(action, test, output string) string {
		return fmt.Sprintf(`{"Action":%q,"Package":"k8s.io/a","Test":%q,"Output":%q}`, action, test, output) + "\n"
	}
	both := line("output", "", "gates true\n") + line("run", "TestA", "") + line("pass", "TestA", "") + line("run", "TestB", "") + line("skip", "TestB", "") +
		line("output", "", "gates false\n") + line("run", "TestA", "") + line("output", "TestA", "a_test.go:1: boom\n") + line("fail", "TestA", "")
	var out bytes.Buffer
	err := unitRunner{records: path, code: "abc", out: &out}.run(strings.NewReader("go: downloading\n" + both + line("fail", "", "")))
	if err == nil || err.Error() != "failed: k8s.io/a" || !strings.Contains(out.String(), "boom") || !strings.Contains(out.String(), "go: downloading") {
		t.Errorf("%v\n%s", err, out.String())
	}
	kept, err := readRecords(path)
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	units(&page, kept.Units)
	if want := "| k8s.io/a | 0 passed, 1 failed, 1 not begun (abc) | 1 passed, 1 skipped (abc) |"; !strings.Contains(page.String(), want) {
		t.Errorf("no %q in\n%s", want, page.String())
	}
	if err := (unitRunner{records: path, out: &out}).run(strings.NewReader("")); err == nil {
		t.Error("no tests are no error")
	}
}

func TestChoiceRefusesWhatItCannotRead(t *testing.T) {
	for text, want := range map[string]string{
		"run x\n":         ":1: neither run",
		"skip\tx\n":       ":1: neither run",
		"run\ta\nrun\t(":  ":2: error parsing regexp",
		"skip\t[\twhy\n":  ":1: error parsing regexp",
		"\n\nfoo\tb\tc\n": ":3: neither run",
	} {
		path := filepath.Join(t.TempDir(), "choice.txt")
		write(t, path, text)
		if _, err := readChoice(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestVictimPasses(t *testing.T) {}

// TestVictimDies takes the process with it when it is asked to, as an apiserver that gives up does.
func TestVictimDies(t *testing.T) {
	dir := os.Getenv("SUITES_VICTIM")
	if dir == "" {
		return
	}
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "pid"), strconv.Itoa(child.Process.Pid))
	os.Exit(255)
}

func TestVictimComesLater(t *testing.T) {}

func TestRunGoesOnAfterAProcessDied(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SUITES_VICTIM", dir)
	var out bytes.Buffer
	r := runner{records: filepath.Join(dir, "results.json"), dir: dir, arm: "on", pkg: "a/job", code: "abc", out: &out, command: []string{os.Args[0], "-test.v=test2json", "-test.run=^TestVictim"}}
	if err := r.run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	kept, err := readRecords(r.records)
	if err != nil {
		t.Fatal(err)
	}
	got := kept.Packages["a/job"]["on"]
	if want := []other{{Test: "TestVictimDies", State: "fail", Alone: "fail"}}; got.Passed != 2 || !slices.Equal(got.Others, want) || got.Failure == "" || got.Code != "abc" {
		t.Errorf("got %+v, want 2 passed and %v", got, want)
	}
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	// Killed, it is a zombie until whoever adopted it has waited for it.
	alive := func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && !strings.Contains(string(stat), ") Z ")
	}
	for end := time.Now().Add(time.Minute); alive(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("what the process had started goes on")
		}
	}
}

func TestRunNeedsTests(t *testing.T) {
	r := runner{dir: t.TempDir(), arm: "on", pkg: "job", out: &bytes.Buffer{}, command: []string{os.Args[0], "-test.run=^TestNone$"}}
	if err := r.run(t.Context()); err == nil || !strings.Contains(err.Error(), "no test that matches") {
		t.Errorf("got %v", err)
	}
}

func TestE2ERunsWhatFailedAgain(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "report.json"), `[{"SpecReports":[{"ContainerHierarchyTexts":["[sig-x] Suite"],"LeafNodeType":"It","LeafNodeText":"b (c)","State":"failed","Failure":{"Message":"boom"}}]}]`)
	script := filepath.Join(dir, "e2e.test")
	write(t, script, `for a; do case $a in --ginkgo.json-report=*) cp "`+dir+`/report.json" "${a#*=}";; esac; done; echo "$@" >>"`+dir+`/calls"; exit 1`)
	write(t, filepath.Join(dir, "choice.txt"), "run\tsig-x\nrun\tsig-y\nskip\twebhook\tneeds a pod that answers\n")
	choice, err := readChoice(filepath.Join(dir, "choice.txt"))
	if err != nil {
		t.Fatal(err)
	}
	r := e2eRunner{records: filepath.Join(dir, "results.json"), dir: dir, arm: "on", code: "abc", filter: "sig-x", choice: choice, command: []string{"sh", script}}
	if err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	want := "--ginkgo.json-report=" + e2ePath(dir, "on", "sig-x", "json") + " --ginkgo.focus=sig-x --ginkgo.skip=webhook\n" +
		"--ginkgo.json-report=" + e2ePath(dir, "on", "sig-x", "again.json") + ` --ginkgo.focus=\[sig-x\] Suite b \(c\)$` + "\n"
	if string(calls) != want {
		t.Errorf("called with\n%swant\n%s", calls, want)
	}
	kept, err := readRecords(r.records)
	if err != nil {
		t.Fatal(err)
	}
	run := kept.Suites["sig-x"]["on"]
	if got := suiteRegressions(kept.Suites, choice); !slices.Equal(got, []string{"[sig-x] Suite b (c) on patched, gates on"}) || run.Failure != "exit status 1" || run.Others[0].Alone != "failed" {
		t.Errorf("regressions %q, %+v", got, run)
	}
	r.filter = "sig-z"
	if err := r.run(t.Context()); err == nil {
		t.Error("a filter that selects nothing is no error")
	}
}
