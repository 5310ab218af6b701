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
	"maps"
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

// choice says what of upstream's e2e suites is run: what run matches and skip does not.
type choice struct {
	run  []string
	skip []excluded
}

type excluded struct{ pattern, reason string }

// readChoice reads lines of "run<tab>PATTERN" and "skip<tab>PATTERN<tab>REASON".
func readChoice(path string) (*choice, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := &choice{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		switch {
		case len(fields) == 2 && fields[0] == "run":
			c.run = append(c.run, fields[1])
		case len(fields) == 3 && fields[0] == "skip":
			c.skip = append(c.skip, excluded{fields[1], fields[2]})
		default:
			return nil, fmt.Errorf("%s:%d: neither run, tab, pattern nor skip, tab, pattern, tab, reason", path, n)
		}
		if _, err := regexp.Compile(fields[1]); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	return c, lines.Err()
}

// flags are ginkgo's for one of the patterns that are run.
func (c *choice) flags(pattern string) []string {
	out := []string{"--ginkgo.focus=" + pattern}
	for _, s := range c.skip {
		out = append(out, "--ginkgo.skip="+s.pattern)
	}
	return out
}

// reason says why a spec was not run, or that it should have been.
func (c *choice) reason(s *spec) string {
	for _, x := range c.skip {
		if regexp.MustCompile(x.pattern).MatchString(s.name()) {
			return x.reason
		}
	}
	return ""
}

// selected are the patterns whose text contains the filter.
func (c *choice) selected(filter string) (out []string) {
	for _, p := range c.run {
		if strings.Contains(p, filter) {
			out = append(out, p)
		}
	}
	return out
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
	for _, old := range []string{report, again, about} {
		if err := os.Remove(old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
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
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(about, append(text, '\n'), 0o644)
}

// once runs the command and returns how it failed, if it did.
func (r e2eRunner) once(ctx context.Context, report string, flags []string) (string, error) {
	cmd := exec.CommandContext(ctx, r.command[0], append(append(r.command[1:len(r.command):len(r.command)], "--ginkgo.json-report="+report), flags...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 2 * time.Minute
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", errors.New("interrupted")
	case errors.As(err, &exit):
		return exit.String(), nil
	}
	return "", err
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

// suites are the results of upstream's e2e suites, by arm.
type suites struct {
	choice      *choice
	runs, again map[string][]*spec
	metas       map[string][]meta
}

func readSuites(dir, choicePath string) (*suites, error) {
	s := &suites{runs: map[string][]*spec{}, again: map[string][]*spec{}, metas: map[string][]meta{}}
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

func (s *suites) write(w *strings.Builder) {
	fmt.Fprintf(w, "\n## End-to-end suites\n\nSuites of k8s.io/kubernetes/test/e2e, unmodified, against a cluster of real etcd, kube-apiserver, kube-scheduler and\n"+
		"kube-controller-manager with kwok in place of nodes. What runs is said in hack/upstream-e2e.txt.\n\n")
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
				if again := outcome(s.again[arm.name], spec.name()); again != nil {
					alone = again.State
				}
				message, _, _ := strings.Cut(spec.Failure.Message, "\n")
				failed = append(failed, fmt.Sprintf("%s: `%s` %s: %s; alone it %s", arm.title, spec.name(), state, message, alone))
				state = "failed"
			case !spec.ran():
				state = "not run"
				if line := fmt.Sprintf("`%s`: %s", spec.name(), cmp.Or(s.choice.reason(spec), "not selected")); !seen[line] {
					seen[line] = true
					excluded = append(excluded, line)
				}
			case state == "skipped":
				message, _, _ := strings.Cut(spec.Failure.Message, "\n")
				if line := fmt.Sprintf("`%s`: %s", spec.name(), message); !seen[line] {
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
			cell := fmt.Sprintf("%d passed", c["passed"])
			for _, state := range []string{"failed", "skipped", "not run"} {
				if c[state] > 0 {
					cell += fmt.Sprintf(", %d %s", c[state], state)
				}
			}
			cells = append(cells, cell)
		}
		fmt.Fprintf(w, "| %s | %s |\n", suite, strings.Join(cells, " | "))
	}
	var codes []string
	for _, arm := range arms {
		seconds := 0.0
		var of []string
		for _, m := range s.metas[arm.name] {
			seconds += m.Seconds
			of = append(of, fmt.Sprintf("%s on %s", cmp.Or(m.Code, "unknown"), m.Began.Format("2006-01-02")))
		}
		if len(of) > 0 {
			slices.Sort(of)
			codes = append(codes, fmt.Sprintf("%s: %s, %.0f s", arm.title, strings.Join(slices.Compact(of), " and "), seconds))
		}
	}
	fmt.Fprintf(w, "\nCode under test, as above: %s.\n", strings.Join(codes, "; "))
	notes(w, "### What failed", "Nothing.", failed)
	notes(w, "### What the suites skipped themselves", "Nothing.", skipped)
	notes(w, "### What was not run, and why", "Everything was run.", excluded)
}

// regressions are the specs that failed on a patched arm, and again alone, but not so on stock.
func (s *suites) regressions() (out []string) {
	stands := func(arm, name string) bool {
		first, again := outcome(s.runs[arm], name), outcome(s.again[arm], name)
		return first != nil && first.failed() && (again == nil || again.failed())
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
