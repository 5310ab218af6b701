// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command mutants makes ours worse than upstream, in one way after the other, and has the random histories find it.
//
//	mutants -seeds 50 -out DIR [NAME...]
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/fresh-kcm/fresh-kcm/test/internal/mutants"
)

func main() {
	root := flag.String("root", ".", "root of the checkout")
	out := flag.String("out", "_output/composition", "folder for the binaries")
	seeds := flag.Int("seeds", 50, "how many seeds may be needed")
	flag.Parse()
	missed := 0
	for _, m := range mutants.Composition() {
		if flag.NArg() > 0 && !slices.Contains(flag.Args(), m.Name) {
			continue
		}
		found, err := hunt(*root, *out, *seeds, m)
		if err != nil {
			fmt.Fprintln(os.Stderr, "mutants:", err)
			os.Exit(1)
		}
		if found == "" {
			missed++
			found = fmt.Sprintf("NOT FOUND in %d seeds", *seeds)
		}
		fmt.Printf("without %-12s %s\n", m.Name, found)
	}
	if missed > 0 {
		os.Exit(1)
	}
}

var failure = regexp.MustCompile(`(?s)seed (\d+):\n.*?(worse: [^\n]*)`)

// hunt returns the first seed that finds the mutant, and how.
func hunt(root, out string, seeds int, m mutants.Mutant) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	binary, err := filepath.Abs(filepath.Join(out, m.Name, "composition.test"))
	if err != nil {
		return "", err
	}
	overlay, err := m.Overlay(root, filepath.Dir(binary))
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "test", "-c", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, "./test/composition")
	build.Dir, build.Stdout, build.Stderr = root, os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("building without %s: %w", m.Name, err)
	}
	run := exec.Command(binary, "-test.run=^TestSeeds$")
	run.Dir = filepath.Join(root, "test", "composition")
	run.Env = append(os.Environ(), "SEEDS="+strconv.Itoa(seeds), "FIRST=1", "STOP=1")
	text, err := run.CombinedOutput()
	if err == nil {
		return "", nil
	}
	match := failure.FindSubmatch(text)
	if match == nil {
		return "", fmt.Errorf("without %s: %w:\n%s", m.Name, err, text)
	}
	return fmt.Sprintf("found by seed %s: %s", match[1], match[2]), nil
}
