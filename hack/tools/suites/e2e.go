// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// spec is what the page tells of one of ginkgo's specs.
type spec struct {
	ContainerHierarchyTexts    []string
	LeafNodeType, LeafNodeText string
	State                      string
	RunTime                    time.Duration
	Failure                    struct{ Message string }
}

// ran is whether ginkgo ran the spec; one that was not selected is skipped without a message.
func (s *spec) ran() bool {
	return s.State != "pending" && (s.State != "skipped" || s.Failure.Message != "")
}

func (s *spec) failed() bool { return s.ran() && s.State != "passed" && s.State != "skipped" }

func (s *spec) name() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
}

// suite is the outermost container, as "[sig-apps] Daemon set".
func (s *spec) suite() string {
	if len(s.ContainerHierarchyTexts) == 0 {
		return ""
	}
	return s.ContainerHierarchyTexts[0]
}

// e2eRunner runs e2e.test, by a command that brings up its cluster, on one arm: once, with a cluster of its
// own, for every pattern.
type e2eRunner struct {
	records, dir, arm, code, filter string
	choice                          *choice
	command                         []string
}

func (r e2eRunner) run(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Join(r.dir, "e2e"), 0o755); err != nil {
		return err
	}
	patterns := r.choice.selected(r.filter)
	if len(patterns) == 0 {
		return fmt.Errorf("no suite of the choice contains %q", r.filter)
	}
	for _, pattern := range patterns {
		if err := r.suite(ctx, pattern); err != nil {
			return fmt.Errorf("%s: %w", pattern, err)
		}
	}
	return nil
}

// suite runs what matches a pattern, and what of it failed once more, on a new cluster.
func (r e2eRunner) suite(ctx context.Context, pattern string) error {
	report, again := e2ePath(r.dir, r.arm, pattern, "json"), e2ePath(r.dir, r.arm, pattern, "again.json")
	if err := forget(report, again); err != nil {
		return err
	}
	fmt.Printf("=== %s, %s\n", pattern, r.arm)
	began := time.Now()
	failure, err := r.once(ctx, report, r.choice.flags(pattern))
	if err != nil {
		return err
	}
	m := newMeta(r.code, began, failure)
	specs, err := readSpecs(report)
	if err != nil {
		return fmt.Errorf("e2e.test left no report: %w", err)
	}
	var failed []string
	var alone []*spec
	for _, s := range specs {
		if s.failed() {
			failed = append(failed, "--ginkgo.focus="+regexp.QuoteMeta(s.name())+"$")
		}
	}
	if len(failed) > 0 {
		fmt.Printf("=== %s, %s: %d failed; again, on a new cluster\n", pattern, r.arm, len(failed))
		if _, err := r.once(ctx, again, failed); err != nil {
			return err
		}
		if alone, err = readSpecs(again); err != nil {
			return fmt.Errorf("e2e.test left no report: %w", err)
		}
	}
	return keep(r.records, func(k *records) { put(k.Suites, pattern, r.arm, recordSuites(m, pattern, specs, alone)) })
}

// recordSuites is what is kept of a run of a pattern; again are the specs that failed, run once more.
func recordSuites(m meta, pattern string, specs, again []*spec) *suiteRun {
	out := &suiteRun{meta: m, Passed: map[string]int{}}
	wanted := regexp.MustCompile(pattern)
	for _, s := range specs {
		if !wanted.MatchString(s.name()) && s.LeafNodeType == "It" {
			continue
		}
		suite := cmp.Or(s.suite(), s.LeafNodeType)
		o := otherSpec{Suite: suite, Name: s.name(), State: s.State, Message: brief(s.Failure.Message)}
		switch {
		case !s.ran():
			o.State = leftOut
		case s.State == "passed":
			out.Passed[suite]++
			continue
		}
		if i := slices.IndexFunc(again, func(a *spec) bool { return a.ran() && a.name() == o.Name }); i >= 0 {
			o.Alone = again[i].State
		}
		out.Others = append(out.Others, o)
	}
	return out
}

// leftOut is the state of a spec that was not selected.
const leftOut = "left out"

// once runs the command and returns how it failed, if it did.
func (r e2eRunner) once(ctx context.Context, report string, flags []string) (string, error) {
	cmd := exec.CommandContext(ctx, r.command[0], append(append(r.command[1:len(r.command):len(r.command)], "--ginkgo.json-report="+report), flags...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 2 * time.Minute
	return failureOf(ctx, cmd.Run())
}

// e2ePath names a file of an arm and a pattern.
func e2ePath(dir, arm, pattern, suffix string) string {
	return filepath.Join(dir, "e2e", arm+"."+strings.Trim(notName.ReplaceAllString(pattern, "-"), "-")+"."+suffix)
}

var notName = regexp.MustCompile(`[^A-Za-z0-9]+`)

func readSpecs(path string) ([]*spec, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseSpecs(f)
}

func parseSpecs(in io.Reader) ([]*spec, error) {
	var reports []struct{ SpecReports []*spec }
	if err := json.NewDecoder(in).Decode(&reports); err != nil {
		return nil, err
	}
	var out []*spec
	for _, r := range reports {
		for _, s := range r.SpecReports {
			// Set-up and tear-down that failed count; else only specs do.
			if s.LeafNodeType == "It" || s.failed() {
				out = append(out, s)
			}
		}
	}
	return out, nil
}
