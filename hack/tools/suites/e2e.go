// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	dir, arm, code, filter string
	choice                 *choice
	command                []string
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
	report, again, about := e2ePath(r.dir, r.arm, pattern, "json"), e2ePath(r.dir, r.arm, pattern, "again.json"), e2ePath(r.dir, r.arm, pattern, "meta.json")
	if err := forget(report, again, about); err != nil {
		return err
	}
	fmt.Printf("=== %s, %s\n", pattern, r.arm)
	began := time.Now()
	failure, err := r.once(ctx, report, r.choice.flags(pattern))
	if err != nil {
		return err
	}
	m := meta{Code: r.code, Began: began.UTC().Truncate(time.Second), Seconds: time.Since(began).Seconds(), Failure: failure}
	specs, err := readSpecs(report)
	if err != nil {
		return fmt.Errorf("e2e.test left no report: %w", err)
	}
	var failed []string
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
	}
	return m.write(about)
}

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
