// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
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

// grace is how long a test process has to end by itself, and its etcd with it, when it is told to.
const grace = 15 * time.Second

// runner runs one package's test binary on one arm and keeps what test2json makes of its output.
type runner struct {
	records, dir, arm, pkg, code string
	command                      []string
	out                          io.Writer
}

// run runs the binary, and each test that failed once more by itself. A test that fails is no error. A test may
// take the process with it; the tests that were still to come are then run by another.
func (r runner) run(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Join(r.dir, r.arm), 0o755); err != nil {
		return err
	}
	if err := forget(r.path("json"), r.path("again.json")); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "=== %s, %s\n", r.pkg, r.arm)
	began := time.Now()
	tests, err := r.list(ctx)
	if err != nil {
		return err
	}
	var failure string
	for rest := tests; len(rest) > 0; {
		command := r.command
		if len(rest) < len(tests) {
			fmt.Fprintf(r.out, "=== %s, %s: the process ended early; another runs the %d tests that it did not begin\n", r.pkg, r.arm, len(rest))
			command = append(command[:len(command):len(command)], "-test.run=^("+strings.Join(rest, "|")+")$")
		}
		ended, err := r.record(ctx, r.path("json"), command)
		if err != nil {
			return err
		}
		failure = cmp.Or(failure, ended)
		result, err := readResult(r.path("json"))
		if err != nil {
			return err
		}
		before := len(rest)
		rest = slices.DeleteFunc(slices.Clone(rest), func(test string) bool { return result.State[test] != "" })
		if len(rest) == before {
			return fmt.Errorf("%s: the process ended before any of %d tests began: %s", r.pkg, before, failure)
		}
	}
	m := newMeta(r.code, began, failure)
	result, err := readResult(r.path("json"))
	if err != nil {
		return err
	}
	for _, test := range result.failedTop() {
		fmt.Fprintf(r.out, "=== %s, %s: %s failed; again, alone\n", r.pkg, r.arm, test)
		if _, err := r.record(ctx, r.path("again.json"), append(r.command[:len(r.command):len(r.command)], "-test.run=^"+regexp.QuoteMeta(test)+"$")); err != nil {
			return err
		}
	}
	again, err := readResult(r.path("again.json"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return keep(r.records, func(k *records) { put(k.Packages, r.pkg, r.arm, result.record(m, again)) })
}

// newMeta is that of a run that has just ended.
func newMeta(code string, began time.Time, failure string) meta {
	return meta{Code: code, Began: began.UTC().Truncate(time.Second), Seconds: int(time.Since(began).Round(time.Second).Seconds()), Failure: failure}
}

// list returns the tests that the command would run.
func (r runner) list(ctx context.Context) ([]string, error) {
	pattern, args := ".", []string{}
	for _, arg := range r.command[1:] {
		if p, ok := strings.CutPrefix(arg, "-test.run="); ok {
			pattern, _, _ = strings.Cut(p, "/")
		}
		if !strings.HasPrefix(arg, "-test.v") {
			args = append(args, arg)
		}
	}
	cmd := exec.CommandContext(ctx, r.command[0], append(args, "-test.list="+pattern)...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tests of %s: %w", r.pkg, err)
	}
	var tests []string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); testName.MatchString(line) {
			tests = append(tests, line)
		}
	}
	if len(tests) == 0 {
		return nil, fmt.Errorf("%s has no test that matches %s", r.pkg, pattern)
	}
	return tests, nil
}

var testName = regexp.MustCompile(`^Test\w*$`)

func (r runner) path(suffix string) string {
	return filepath.Join(r.dir, r.arm, strings.ReplaceAll(r.pkg, "/", "-")+"."+suffix)
}

// record appends the events of a run to a file, and says what became of every top-level test. It returns how
// the process failed, if it did.
func (r runner) record(ctx context.Context, path string, command []string) (failure string, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	defer f.Close()
	// A process that dies leaves its etcd behind, and files.
	tmp, err := os.MkdirTemp("", "suites-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	cmd := exec.CommandContext(ctx, "go", append([]string{"tool", "test2json", "-t", "-p", r.pkg}, command...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }()
	lines := bufio.NewReader(stdout)
	for {
		line, readErr := lines.ReadBytes('\n')
		if _, err := f.Write(line); err != nil {
			return "", err
		}
		var e event
		if json.Unmarshal(line, &e) == nil && e.Test != "" && !strings.Contains(e.Test, "/") && ends[e.Action] {
			fmt.Fprintf(r.out, "%-4s %s (%.1f s)\n", e.Action, e.Test, e.Elapsed)
		}
		if readErr != nil {
			break
		}
	}
	return failureOf(ctx, cmd.Wait())
}

// failureOf says how a process failed, if it did; any other error comes back.
func failureOf(ctx context.Context, err error) (string, error) {
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", errors.New("interrupted")
	case errors.As(err, &exit):
		return exit.String(), nil
	}
	return "", err
}

// forget removes what an earlier run has left.
func forget(paths ...string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
