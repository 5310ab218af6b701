// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

const e2eHead = `
## End-to-end suites

Suites of k8s.io/kubernetes/test/e2e, unmodified, against a cluster of real etcd, kube-apiserver, kube-scheduler and
kube-controller-manager with kwok in place of nodes. What runs is said in hack/upstream-e2e.txt.

`

// folders are those of a path of the machine that a message came from.
var folders = regexp.MustCompile(`/(?:[\w.+-]+/)+`)

// brief is a message in one line, in which paths are files' names.
func brief(message string) string {
	const most = 200
	line := []rune(strings.Join(strings.Fields(folders.ReplaceAllString(message, "")), " "))
	if len(line) > most {
		return string(line[:most]) + "..."
	}
	return string(line)
}

// chosenOthers are the specs of an arm that did not pass, by pattern. What is left out by now is, also if it was run before.
func chosenOthers(suites map[string]map[string]*suiteRun, chosen *choice, arm string) (out []otherSpec) {
	for _, pattern := range chosen.run {
		if run := suites[pattern][arm]; run != nil {
			for _, o := range run.Others {
				if chosen.reason(o.Name) != "" {
					o.State, o.Message, o.Alone = leftOut, "", ""
				}
				out = append(out, o)
			}
		}
	}
	return out
}

func e2e(w *strings.Builder, suites map[string]map[string]*suiteRun, chosen *choice) {
	w.WriteString(e2eHead)
	if len(suites) == 0 {
		fmt.Fprintln(w, "Not run yet.")
		return
	}
	count := map[string]map[string]map[string]int{}
	add := func(suite, arm, state string, n int) {
		if count[suite] == nil {
			count[suite] = map[string]map[string]int{}
		}
		if count[suite][arm] == nil {
			count[suite][arm] = map[string]int{}
		}
		count[suite][arm][state] += n
	}
	var failed, skipped, excluded, codes, missing []string
	note := func(to *[]string, line string) {
		if !slices.Contains(*to, line) {
			*to = append(*to, line)
		}
	}
	for _, arm := range arms {
		var of []string
		for _, pattern := range chosen.run {
			run := suites[pattern][arm.name]
			if run == nil {
				missing = append(missing, fmt.Sprintf("%s: what matches `%s`", arm.title, strings.TrimSpace(pattern)))
				continue
			}
			for suite, n := range run.Passed {
				add(suite, arm.name, "passed", n)
			}
			code := cmp.Or(run.Code, "unknown")
			if arm.name == "stock" {
				code = "as published"
			}
			of = append(of, fmt.Sprintf("%s on %s", code, run.Began.Format("2006-01-02")))
		}
		for _, o := range chosenOthers(suites, chosen, arm.name) {
			state := o.State
			switch {
			case o.failed():
				failed = append(failed, fmt.Sprintf("%s: `%s` %s: %s; alone it %s", arm.title, o.Name, state, o.Message, cmp.Or(o.Alone, "was not run")))
				state = "failed"
			case state == leftOut:
				note(&excluded, fmt.Sprintf("`%s`: %s", o.Name, cmp.Or(chosen.reason(o.Name), "not selected")))
			default:
				note(&skipped, fmt.Sprintf("`%s`: %s", o.Name, o.Message))
			}
			add(o.Suite, arm.name, state, 1)
		}
		if len(of) > 0 {
			slices.Sort(of)
			codes = append(codes, fmt.Sprintf("%s: %s", arm.title, strings.Join(slices.Compact(of), " and ")))
		}
	}
	fmt.Fprintf(w, "| Suite | %s |\n| --- | --- | --- | --- |\n", strings.Join(titles(), " | "))
	for _, suite := range slices.Sorted(maps.Keys(count)) {
		var cells []string
		for _, arm := range arms {
			c := count[suite][arm.name]
			if c == nil {
				cells = append(cells, "not run")
				continue
			}
			var cell strings.Builder
			fmt.Fprintf(&cell, "%d passed", c["passed"])
			for _, state := range []string{"failed", "skipped", leftOut} {
				if c[state] > 0 {
					fmt.Fprintf(&cell, ", %d %s", c[state], state)
				}
			}
			cells = append(cells, cell.String())
		}
		fmt.Fprintf(w, "| %s | %s |\n", suite, strings.Join(cells, " | "))
	}
	fmt.Fprintf(w, "\nCode under test, as above: %s.\n", strings.Join(codes, "; "))
	notes(w, "### What nobody has run yet", "Nothing.", missing)
	notes(w, "### What failed", "Nothing.", failed)
	notes(w, "### What the suites skipped themselves", "Nothing.", skipped)
	notes(w, "### What is left out, and why", "Nothing.", excluded)
}

func (o otherSpec) failed() bool { return o.State != leftOut && o.State != "skipped" }

// suiteRegressions are the specs that failed on a patched arm, and again alone, but not so on stock.
func suiteRegressions(suites map[string]map[string]*suiteRun, chosen *choice) (out []string) {
	stands := func(o otherSpec) bool { return o.failed() && o.Alone != "passed" && o.Alone != "skipped" }
	stock := chosenOthers(suites, chosen, "stock")
	for _, arm := range arms[1:] {
		for _, o := range chosenOthers(suites, chosen, arm.name) {
			if stands(o) && !slices.ContainsFunc(stock, func(s otherSpec) bool { return s.Name == o.Name && stands(s) }) {
				out = append(out, fmt.Sprintf("%s on %s", o.Name, arm.title))
			}
		}
	}
	return out
}
