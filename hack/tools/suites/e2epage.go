// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// suites are the results of upstream's e2e suites, by arm.
type suites struct {
	choice      *choice
	runs, again map[string][]*spec
	metas       map[string][]meta
	done        map[string]bool // of arm and pattern
}

func readSuites(dir, choicePath string) (*suites, error) {
	s := &suites{runs: map[string][]*spec{}, again: map[string][]*spec{}, metas: map[string][]meta{}, done: map[string]bool{}}
	var err error
	if s.choice, err = readChoice(choicePath); err != nil {
		return nil, err
	}
	for _, arm := range arms {
		for _, pattern := range s.choice.run {
			if err := s.read(dir, arm.name, pattern); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func (s *suites) read(dir, arm, pattern string) error {
	text, err := os.ReadFile(e2ePath(dir, arm, pattern, "meta.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var m meta
	if err := errors.Join(err, json.Unmarshal(text, &m)); err != nil {
		return err
	}
	s.metas[arm] = append(s.metas[arm], m)
	s.done[arm+pattern] = true
	specs, err := readSpecs(e2ePath(dir, arm, pattern, "json"))
	if err != nil {
		return err
	}
	wanted := regexp.MustCompile(pattern)
	for _, spec := range specs {
		if s.choice.reason(spec) != "" {
			spec.State, spec.Failure.Message = "skipped", "" // also if it was run before that was known
		}
		if wanted.MatchString(spec.name()) || spec.LeafNodeType != "It" {
			s.runs[arm] = append(s.runs[arm], spec)
		}
	}
	again, err := readSpecs(e2ePath(dir, arm, pattern, "again.json"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.again[arm] = append(s.again[arm], again...)
	return nil
}

func (s *suites) empty() bool { return len(s.runs) == 0 }

// outcome is what became of a spec in a run.
func outcome(specs []*spec, name string) *spec {
	i := slices.IndexFunc(specs, func(s *spec) bool { return s.name() == name })
	if i < 0 {
		return nil
	}
	return specs[i]
}

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

func (s *suites) write(w *strings.Builder) {
	w.WriteString(e2eHead)
	if s.empty() {
		fmt.Fprintln(w, "Not run yet.")
		return
	}
	count := map[string]map[string]map[string]int{}
	var failed, skipped, excluded []string
	seen := map[string]bool{}
	for _, arm := range arms {
		for _, spec := range s.runs[arm.name] {
			suite, state := cmp.Or(spec.suite(), spec.LeafNodeType), spec.State
			switch {
			case spec.failed():
				alone := "was not run"
				if again := outcome(s.again[arm.name], spec.name()); again != nil && again.ran() {
					alone = again.State
				}
				failed = append(failed, fmt.Sprintf("%s: `%s` %s: %s; alone it %s", arm.title, spec.name(), state, brief(spec.Failure.Message), alone))
				state = "failed"
			case !spec.ran():
				state = "left out"
				if line := fmt.Sprintf("`%s`: %s", spec.name(), cmp.Or(s.choice.reason(spec), "not selected")); !seen[line] {
					seen[line] = true
					excluded = append(excluded, line)
				}
			case state == "skipped":
				if line := fmt.Sprintf("`%s`: %s", spec.name(), brief(spec.Failure.Message)); !seen[line] {
					seen[line] = true
					skipped = append(skipped, line)
				}
			}
			if count[suite] == nil {
				count[suite] = map[string]map[string]int{}
			}
			if count[suite][arm.name] == nil {
				count[suite][arm.name] = map[string]int{}
			}
			count[suite][arm.name][state]++
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
			for _, state := range []string{"failed", "skipped", "left out"} {
				if c[state] > 0 {
					fmt.Fprintf(&cell, ", %d %s", c[state], state)
				}
			}
			cells = append(cells, cell.String())
		}
		fmt.Fprintf(w, "| %s | %s |\n", suite, strings.Join(cells, " | "))
	}
	var codes []string
	for _, arm := range arms {
		seconds := 0.0
		var of []string
		for _, m := range s.metas[arm.name] {
			seconds += m.Seconds
			code := cmp.Or(m.Code, "unknown")
			if arm.name == "stock" {
				code = "as published"
			}
			of = append(of, fmt.Sprintf("%s on %s", code, m.Began.Format("2006-01-02")))
		}
		if len(of) > 0 {
			slices.Sort(of)
			codes = append(codes, fmt.Sprintf("%s: %s, %.0f s", arm.title, strings.Join(slices.Compact(of), " and "), seconds))
		}
	}
	fmt.Fprintf(w, "\nCode under test, as above: %s.\n", strings.Join(codes, "; "))
	var missing []string
	for _, arm := range arms {
		for _, pattern := range s.choice.run {
			if !s.done[arm.name+pattern] {
				missing = append(missing, fmt.Sprintf("%s: what matches `%s`", arm.title, strings.TrimSpace(pattern)))
			}
		}
	}
	notes(w, "### What nobody has run yet", "Nothing.", missing)
	notes(w, "### What failed", "Nothing.", failed)
	notes(w, "### What the suites skipped themselves", "Nothing.", skipped)
	notes(w, "### What is left out, and why", "Nothing.", excluded)
}

// regressions are the specs that failed on a patched arm, and again alone, but not so on stock.
func (s *suites) regressions() (out []string) {
	stands := func(arm, name string) bool {
		first, again := outcome(s.runs[arm], name), outcome(s.again[arm], name)
		return first != nil && first.failed() && (again == nil || !again.ran() || again.failed())
	}
	for _, arm := range arms[1:] {
		for _, spec := range s.runs[arm.name] {
			if stands(arm.name, spec.name()) && !stands("stock", spec.name()) {
				out = append(out, fmt.Sprintf("%s on %s", spec.name(), arm.title))
			}
		}
	}
	return out
}
