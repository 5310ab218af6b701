// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
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

// result is what became of each test of one run.
type result struct {
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

// record is what is kept of a run of a package; again are the tests that failed, each alone.
func (r *result) record(m meta, again *result) *packageRun {
	out := &packageRun{meta: m, Wired: r.Wired}
	leaves := r.leaves()
	for _, test := range slices.Sorted(maps.Keys(leaves)) {
		state := leaves[test]
		if state == "pass" {
			out.Passed++
			continue
		}
		o := other{Test: test, State: state, Why: r.Why[test]}
		if again != nil {
			o.Alone = again.State[test]
		}
		out.Others = append(out.Others, o)
	}
	return out
}
