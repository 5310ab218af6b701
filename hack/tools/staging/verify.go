// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// verify checks the headers, sizes and application of the patches, on fresh copies, and that the copies have the added
// files as they are, and reports all problems at once.
func (p *project) verify() error {
	problems := slices.Concat(p.checkSeries(), p.checkEditsOfAdded(), p.checkLimits())
	for _, pt := range p.series {
		problems = append(problems, pt.checkInterfaces()...)
		if len(pt.inline) > 0 {
			problems = append(problems, fmt.Errorf("%s adds %s: a patch edits what upstream has, and new files are files: run \"make update-patches\"", pt.name, strings.Join(pt.inline, ", ")))
		}
		if err := pt.checkHeader(); err != nil {
			problems = append(problems, err)
		}
	}
	for _, m := range p.modules {
		problems = append(problems, m.checkRoundTrip(p.root)...)
		if edited := m.editedSinceApply(p.root); edited != "" {
			problems = append(problems, fmt.Errorf("%s/%s: %s was edited and is in no patch yet: run \"make update-patches\"", outDir, m.name, edited))
		}
		problems = append(problems, m.checkCopies(p.root)...)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	var all size
	for _, pt := range p.series {
		s := pt.size()
		all = size{all.edited + s.edited, all.added + s.added, all.tests + s.tests}
		fmt.Printf("%-60s %s\n", pt.name, s)
	}
	fmt.Printf("%d patches on %d modules, %s: apply without fuzz or offset and round-trip\n", len(p.series), len(p.modules), all)
	return nil
}

// checkLimits compares the sizes of the patches with the limits that the series states. If there are limits, the last line is one.
func (p *project) checkLimits() (problems []error) {
	limited := 0
	for _, l := range p.limits {
		limited = l.to
		if l.from == l.to {
			problems = append(problems, fmt.Errorf("%s: a limit has no patches above it", seriesFile))
			continue
		}
		var s size
		for _, pt := range p.series[l.from:l.to] {
			s.edited, s.added = s.edited+pt.size().edited, s.added+pt.size().added
		}
		if s.edited > l.edited || s.added > l.added {
			problems = append(problems, fmt.Errorf("%s: patches %s to %s have %d lines edited and %d added, at most %d and %d are allowed: logic belongs in pkg/", seriesFile, p.series[l.from].number(), p.series[l.to-1].number(), s.edited, s.added, l.edited, l.added))
		}
	}
	if limited > 0 && limited < len(p.series) {
		problems = append(problems, fmt.Errorf("%s: no limit comes after %s", seriesFile, p.series[len(p.series)-1].name))
	}
	return problems
}

var anonymousInterface = regexp.MustCompile(`(\.\(|^\s*var \w+ )interface ?\{[^}]`)

// checkInterfaces finds interfaces without a name that the patch looks for at run time: nothing can assert that they are
// implemented, so that a change of one side would close the seam silently.
func (p *patch) checkInterfaces() (problems []error) {
	complain := func(file, line string) {
		if anonymousInterface.MatchString(line) {
			problems = append(problems, fmt.Errorf("%s: %s: %q: name the interface, and assert in pkg/ that it is implemented", p.name, file, strings.TrimSpace(line)))
		}
	}
	for _, f := range splitDiff(p.diff) {
		for _, h := range f.hunks {
			for line := range strings.Lines(h.text) {
				if added, ok := strings.CutPrefix(line, "+"); ok {
					complain(f.name, added)
				}
			}
		}
	}
	for _, f := range p.adds() {
		for line := range strings.Lines(p.added[f]) {
			complain(f, line)
		}
	}
	return problems
}

// checkEditsOfAdded finds patches that edit a file of ours: that file is to be edited itself.
func (p *project) checkEditsOfAdded() (problems []error) {
	for _, m := range p.modules {
		adder := map[string]*patch{}
		for _, pt := range m.patches {
			for _, f := range pt.edits() {
				if by := adder[f]; by != nil {
					problems = append(problems, fmt.Errorf("%s edits %s, which %s adds: edit that file", pt.name, f, by.name))
				}
			}
			for _, f := range pt.adds() {
				if by := adder[f]; by != nil {
					problems = append(problems, fmt.Errorf("%s adds %s, which %s adds, too", pt.name, f, by.name))
				}
				adder[f] = pt
			}
		}
	}
	return problems
}

// checkCopies compares the added files with the copies of them, if there are copies.
func (m *module) checkCopies(root string) (problems []error) {
	if !exists(m.tree(root)) {
		return nil
	}
	for _, pt := range m.patches {
		for _, f := range pt.adds() {
			copied, err := os.ReadFile(filepath.Join(m.tree(root), f))
			if err != nil || string(copied) != pt.added[f] {
				problems = append(problems, fmt.Errorf("%s/%s/%s is not as %s has it: run \"make patch\" if that was edited, \"make update-patches\" if the copy was", outDir, m.name, f, strings.TrimSuffix(pt.name, ".patch")))
			}
		}
	}
	return problems
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
	return append(problems, p.checkFolders(listed)...)
}

// checkFolders finds folders of files that belong to no patch.
func (p *project) checkFolders(listed map[string]bool) (problems []error) {
	for _, m := range p.modules {
		folder := filepath.Join(patchDir, m.name, filesDir)
		entries, err := os.ReadDir(filepath.Join(p.root, folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, err)
		}
		for _, e := range entries {
			if !e.IsDir() || !listed[m.name+"/"+e.Name()+".patch"] {
				problems = append(problems, fmt.Errorf("%s/%s belongs to no patch of %s", folder, e.Name(), seriesFile))
			}
		}
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
		if err := pt.checkNew(base, m); err != nil {
			problems = append(problems, err)
		}
		for _, f := range pt.edits() {
			if !loaded[f] {
				loaded[f] = true
				errs = append(errs, copyFile(filepath.Join(base, f), filepath.Join(state, f)))
			}
			errs = append(errs, copyFile(filepath.Join(state, f), filepath.Join(before, f)))
		}
		offsets, err := pt.applyTo(state, m)
		if err != nil {
			return append(problems, err) // those that follow build on this one
		}
		for _, o := range offsets {
			problems = append(problems, fmt.Errorf("%s: %s: run \"make update-patches\"", pt.name, o))
		}
		for _, f := range pt.edits() {
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
