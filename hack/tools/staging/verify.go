// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// verify checks what DESIGN 5 promises of the patches, on fresh copies, and reports all that is
// wrong at once.
func (p *project) verify() error {
	problems := p.checkSeries()
	for _, pt := range p.series {
		if err := pt.checkHeader(); err != nil {
			problems = append(problems, err)
		}
	}
	for _, m := range p.modules {
		problems = append(problems, m.checkRoundTrip(p.root)...)
		if edited := m.editedSinceApply(p.root); edited != "" {
			problems = append(problems, fmt.Errorf("%s/%s: %s was edited and is in no patch yet: run \"make update-patches\"", outDir, m.name, edited))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	lines := 0
	for _, pt := range p.series {
		lines += pt.changedLines()
		fmt.Printf("%-60s %4d changed lines\n", pt.name, pt.changedLines())
	}
	fmt.Printf("%d patches on %d modules, %d changed lines: apply without fuzz or offset and round-trip\n", len(p.series), len(p.modules), lines)
	return nil
}

// checkSeries compares the series with the files, and the numbers with each other.
func (p *project) checkSeries() (problems []error) {
	listed := map[string]bool{}
	last := ""
	for _, pt := range p.series {
		if listed[pt.name] {
			problems = append(problems, fmt.Errorf("%s: %s is listed twice", seriesFile, pt.name))
		}
		listed[pt.name] = true
		if !patchName.MatchString(filepath.Base(pt.name)) {
			problems = append(problems, fmt.Errorf("%s: want a name such as 0001-what-it-opens.patch", pt.name))
			continue
		}
		if pt.number() <= last {
			problems = append(problems, fmt.Errorf("%s: number %s comes after %s: numbers rise through the whole series and are never used twice", pt.name, pt.number(), last))
		}
		last = pt.number()
	}
	err := filepath.WalkDir(filepath.Join(p.root, patchDir), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".patch") {
			return err
		}
		rel, err := filepath.Rel(filepath.Join(p.root, patchDir), file)
		if err == nil && !listed[filepath.ToSlash(rel)] {
			problems = append(problems, fmt.Errorf("%s/%s is not in %s", patchDir, rel, seriesFile))
		}
		return err
	})
	if err != nil {
		problems = append(problems, err)
	}
	return problems
}

// checkRoundTrip applies the patches one by one to the files they touch and makes each anew.
func (m *module) checkRoundTrip(root string) (problems []error) {
	base, err := m.base()
	if err != nil {
		return []error{err}
	}
	work, err := os.MkdirTemp("", "staging-")
	if err != nil {
		return []error{err}
	}
	defer os.RemoveAll(work)
	state := filepath.Join(work, "state")
	if err := os.MkdirAll(state, 0o755); err != nil {
		return []error{err}
	}
	loaded := map[string]bool{}
	for _, pt := range m.patches {
		before, after := filepath.Join(work, "a"), filepath.Join(work, "b")
		var errs []error
		for _, f := range pt.files() {
			if !loaded[f] {
				loaded[f] = true
				errs = append(errs, copyFile(filepath.Join(base, f), filepath.Join(state, f)))
			}
			errs = append(errs, copyFile(filepath.Join(state, f), filepath.Join(before, f)))
		}
		offsets, err := pt.applyTo(root, state, m)
		if err != nil {
			return append(problems, err) // those that follow build on this one
		}
		for _, o := range offsets {
			problems = append(problems, fmt.Errorf("%s: %s: run \"make update-patches\"", pt.name, o))
		}
		for _, f := range pt.files() {
			errs = append(errs, copyFile(filepath.Join(state, f), filepath.Join(after, f)))
		}
		again, err := diff(work)
		errs = append(errs, err, os.RemoveAll(before), os.RemoveAll(after))
		if err := errors.Join(errs...); err != nil {
			return append(problems, err)
		}
		if again != pt.diff {
			problems = append(problems, fmt.Errorf("%s: does not round-trip: run \"make update-patches\"", pt.name))
		}
	}
	return problems
}
