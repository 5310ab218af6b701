// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command hunt takes one protection away after the other, and has the test that is about it miss it. It writes what it saw
// into the page of protections.
//
//	hunt -page docs/protection.md -commit COMMIT [NAME...]
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/internal/mutants"
)

type hunter struct {
	root, out string
	seeds     int
}

func main() {
	h := hunter{}
	flag.StringVar(&h.root, "root", ".", "root of the checkout")
	flag.StringVar(&h.out, "out", "_output/mutants", "folder for the test binaries")
	flag.IntVar(&h.seeds, "seeds", 50, "how many seeds a random history may take")
	page := flag.String("page", "", "page of protections that is to have the rows")
	commit := flag.String("commit", "", "commit that the rows name")
	flag.Parse()
	if err := h.run(flag.Args(), *page, *commit); err != nil {
		fmt.Fprintln(os.Stderr, "hunt:", err)
		os.Exit(1)
	}
}

func (h hunter) run(names []string, page, commit string) (err error) {
	known := []string{}
	for _, m := range mutants.Tests() {
		known = append(known, m.Name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no mutant %q that a test has to find", name)
		}
	}
	if h.root, err = filepath.Abs(h.root); err != nil {
		return err
	}
	if h.out, err = filepath.Abs(h.out); err != nil {
		return err
	}
	missed := 0
	for _, m := range mutants.Tests() {
		if len(names) > 0 && !slices.Contains(names, m.Name) {
			continue
		}
		began := time.Now()
		by, err := h.hunt(m)
		if err != nil {
			missed++
			fmt.Printf("without %-18s NOT FOUND: %v\n", m.Name, err)
			continue
		}
		fmt.Printf("without %-18s found by %s in %s\n", m.Name, by, time.Since(began).Round(time.Second))
		if page == "" {
			continue
		}
		p, err := mutants.ReadPage(page)
		if err != nil {
			return err
		}
		row := mutants.TestRow{Without: m.Protection, Mutant: m.Name, CaughtBy: by, Commit: commit}
		if row.Rests, err = row.RestsOn(h.root); err != nil {
			return err
		}
		p.AddTest(row)
		if err := p.Write(page); err != nil {
			return err
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d protections were not missed by their tests", missed)
	}
	return nil
}

// hunt says what finds the mutant. The same test passes with the protection.
func (h hunter) hunt(m mutants.Tested) (by string, err error) {
	without, err := h.build(m, true)
	if err != nil {
		return "", err
	}
	text, err := h.test(m, without, h.seeds)
	if err == nil {
		return "", fmt.Errorf("%s of %s passes", m.Test, m.Package)
	}
	seeds := 0
	if by, seeds, err = caught(m, text); err != nil {
		return "", fmt.Errorf("%w:\n%s", err, text)
	}
	with, err := h.build(m, false)
	if err != nil {
		return "", err
	}
	if text, err := h.test(m, with, seeds); err != nil || strings.Contains(text, "no tests to run") {
		return "", fmt.Errorf("%s of %s fails with the protection, too (%w):\n%s", m.Test, m.Package, err, text)
	}
	return by, nil
}

func (h hunter) build(m mutants.Tested, without bool) (binary string, err error) {
	args := []string{"test", "-c", "-ldflags=-s -w", "-o"}
	if without {
		binary = filepath.Join(h.out, m.Name, "mutant.test")
		overlay, err := m.Overlay(h.root, filepath.Dir(binary))
		if err != nil {
			return "", err
		}
		args = append(args, binary, "-overlay", overlay)
	} else {
		binary = filepath.Join(h.out, path.Base(m.Package)+".test")
		args = append(args, binary)
	}
	build := exec.Command("go", append(args, "./"+m.Package)...)
	build.Dir, build.Stdout, build.Stderr = h.root, os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("building %s: %w", m.Package, err)
	}
	return binary, nil
}

// test runs the test, a random history with so many seeds, and removes the binary of a mutant, of which there are many.
func (h hunter) test(m mutants.Tested, binary string, seeds int) (string, error) {
	if strings.HasPrefix(binary, filepath.Join(h.out, m.Name)) {
		defer os.Remove(binary)
	}
	var pattern []string
	for part := range strings.SplitSeq(m.Test, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	run := exec.Command(binary, "-test.v", "-test.timeout=10m", "-test.run="+strings.Join(pattern, "/"))
	run.Dir = filepath.Join(h.root, m.Package)
	if number := mutants.SeedsOf[m.Test]; number != "" {
		run.Env = append(os.Environ(), number+"="+strconv.Itoa(seeds), "FIRST=1", "STOP=1")
	}
	text, err := run.CombinedOutput()
	return string(text), err
}

var (
	failedSeed = regexp.MustCompile(`(?m)seed (\d+)(?: \(.*\))?:$`)
	worse      = regexp.MustCompile(`(?m)worse: ([^:\n]+): `)
)

// caught says what a test has said, if that is what it was to say: that it failed, by itself, and by the rule that is named.
func caught(m mutants.Tested, text string) (by string, seeds int, err error) {
	text, _, _ = strings.Cut(text, "\npanic: deadlock: main bubble goroutine has exited but") // It follows on a failure in a bubble.
	if strings.Contains(text, "\npanic: ") || strings.Contains(text, "\nfatal error: ") {
		return "", 0, fmt.Errorf("%s of %s did not end by itself", m.Test, m.Package)
	}
	if !strings.Contains(text, "--- FAIL: "+m.Test+" (") {
		return "", 0, fmt.Errorf("%s of %s is not what failed", m.Test, m.Package)
	}
	by = fmt.Sprintf("`%s` in %s", m.Test, m.Package)
	if m.Rule == "" {
		return by, 0, nil
	}
	seed := failedSeed.FindStringSubmatch(text)
	var rules []string
	for _, match := range worse.FindAllStringSubmatch(text, -1) {
		rules = append(rules, match[1])
	}
	if seed == nil || !slices.Contains(rules, m.Rule) {
		return "", 0, fmt.Errorf("ours is worse by %q, not by %q", rules, m.Rule)
	}
	seeds, err = strconv.Atoi(seed[1])
	return fmt.Sprintf("%s, rule %q, seed %d", by, m.Rule, seeds), seeds, err
}
