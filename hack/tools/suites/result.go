// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// wiredPrefix is what test/upstream writes for every controller that gets a store of this project.
const wiredPrefix = "fresh-kcm: wired "

// event is a line of test2json.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// message is what a test prints by its testing.T, which t.Skip does last.
var message = regexp.MustCompile(`^ *[\w-]+\.go:\d+: (.*)`)

var ends = map[string]bool{"pass": true, "fail": true, "skip": true}

// meta is what a run of a package says about itself.
type meta struct {
	Code    string
	Began   time.Time
	Seconds float64
	// Failure is how the process ended if it did not succeed, such as "exit status 1".
	Failure string
}

func (m meta) write(path string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// result is what became of each test of one run.
type result struct {
	meta
	// State is pass, fail, skip, or run if the test never ended.
	State map[string]string
	// Why is what a skipped test said.
	Why map[string]string
	// Wired are the controllers that got a store of this project.
	Wired []string
}

func readResult(path string) (*result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parse(f)
}

func parse(in io.Reader) (*result, error) {
	r := &result{State: map[string]string{}, Why: map[string]string{}}
	said := map[string]string{}
	lines := bufio.NewReader(in)
	for {
		line, readErr := lines.ReadBytes('\n')
		var e event
		if len(line) > 0 {
			if err := json.Unmarshal(line, &e); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
		}
		if _, controller, ok := strings.Cut(e.Output, wiredPrefix); ok {
			controller = strings.TrimSpace(controller)
			if !slices.Contains(r.Wired, controller) {
				r.Wired = append(r.Wired, controller)
			}
		}
		switch {
		case e.Test == "":
		case e.Action == "run" || ends[e.Action]:
			r.State[e.Test] = e.Action
			if e.Action == "skip" {
				r.Why[e.Test] = said[e.Test]
			}
		case e.Action == "output":
			if m := message.FindStringSubmatch(e.Output); m != nil {
				said[e.Test] = strings.TrimSpace(m[1])
			}
		}
		if errors.Is(readErr, io.EOF) {
			slices.Sort(r.Wired)
			return r, nil
		}
		if readErr != nil {
			return nil, readErr
		}
	}
}

// leaves are the tests that count: those without subtests, and those that fail although no subtest does.
func (r *result) leaves() map[string]string {
	out := map[string]string{}
	for test, state := range r.State {
		parent, explained := false, false
		for other, s := range r.State {
			if strings.HasPrefix(other, test+"/") {
				parent = true
				explained = explained || s == state
			}
		}
		if !parent || (bad(state) && !explained) {
			out[test] = state
		}
	}
	return out
}

// bad is the state of a test that failed, or never ended.
func bad(state string) bool { return state == "fail" || state == "run" }

func (r *result) failedTop() []string {
	var out []string
	for test, state := range r.State {
		if bad(state) && !strings.Contains(test, "/") {
			out = append(out, test)
		}
	}
	slices.Sort(out)
	return out
}

// pkg is what became of a package on each arm.
type pkg struct {
	Name string
	// Runs has a result for each arm that was run, Again one of the tests that failed there, each alone.
	Runs, Again map[string]*result
}

// tests are the tests that any arm has.
func (p *pkg) tests() []string {
	var out []string
	for _, r := range p.Runs {
		for test := range r.leaves() {
			out = append(out, test)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func readPackages(dir string) ([]*pkg, error) {
	found := map[string]*pkg{}
	for _, arm := range arms {
		metas, err := filepath.Glob(filepath.Join(dir, arm.name, "*.meta.json"))
		if err != nil {
			return nil, err
		}
		for _, path := range metas {
			name := strings.TrimSuffix(filepath.Base(path), ".meta.json")
			p := found[name]
			if p == nil {
				p = &pkg{Name: name, Runs: map[string]*result{}, Again: map[string]*result{}}
				found[name] = p
			}
			base := strings.TrimSuffix(path, "meta.json")
			r, err := readResult(base + "json")
			if err != nil {
				return nil, err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			if err := json.Unmarshal(text, &r.meta); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			p.Runs[arm.name] = r
			switch again, err := readResult(base + "again.json"); {
			case err == nil:
				p.Again[arm.name] = again
			case !errors.Is(err, os.ErrNotExist):
				return nil, err
			}
		}
	}
	out := make([]*pkg, 0, len(found))
	for _, p := range found {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *pkg) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
