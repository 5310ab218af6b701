// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// records are what is kept of the last run of every package and pattern, by arm. The page is made of them.
type records struct {
	Packages map[string]map[string]*packageRun
	// Units are packages of unit tests.
	Units  map[string]map[string]*packageRun
	Suites map[string]map[string]*suiteRun
}

// meta is what a run says about itself.
type meta struct {
	Code    string
	Began   time.Time
	Seconds int `json:",omitempty"`
	// Failure is how the process ended if it did not succeed, such as "exit status 1".
	Failure string `json:",omitempty"`
}

// packageRun is a run of a package.
type packageRun struct {
	meta
	Passed int
	// Others are the tests that did not pass.
	Others []other `json:",omitempty"`
	// Wired are the controllers that got a store of this project.
	Wired []string `json:",omitempty"`
	// Note is added by hand: what runs before this one showed that it does not.
	Note string `json:",omitempty"`
}

// other is a test that failed or was skipped, or never ended.
type other struct {
	Test, State string
	// Alone is what became of it when it was run once more.
	Alone string `json:",omitempty"`
	// Why is what a skipped test said.
	Why string `json:",omitempty"`
}

// suiteRun is a run of the specs that match a pattern.
type suiteRun struct {
	meta
	// Passed are how many specs did, by suite.
	Passed map[string]int
	// Others are the specs that did not pass.
	Others []otherSpec `json:",omitempty"`
}

// otherSpec is a spec that failed or was skipped, or was not selected.
type otherSpec struct {
	Suite, Name, State string
	Message            string `json:",omitempty"`
	// Alone is what became of it when it was run once more.
	Alone string `json:",omitempty"`
}

// readRecords reads what is kept; of no file, nothing.
func readRecords(path string) (*records, error) {
	r := &records{Packages: map[string]map[string]*packageRun{}, Units: map[string]map[string]*packageRun{}, Suites: map[string]map[string]*suiteRun{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// keep puts a run in place of the last one like it.
func keep(path string, change func(*records)) error {
	r, err := readRecords(path)
	if err != nil {
		return err
	}
	change(r)
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// put has an arm's run of name replaced.
func put[R any](runs map[string]map[string]R, name, arm string, run R) {
	if runs[name] == nil {
		runs[name] = map[string]R{}
	}
	runs[name][arm] = run
}
