// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// headerTemplate starts a patch that update makes; verify complains until it is filled in.
const headerTemplate = "Description:\nWhy downstream:\nUpstream:\nDiffers from upstream:\nGate:\nDrop when:\nSize:\n\n"

// update rewrites every patch so that the series makes the copies as they are now. An edit of a file of upstream goes to
// the last patch that touches this file, and that of an added file to the file; files that no patch has yet go to into.
func (p *project) update(into string) error {
	for _, m := range p.modules {
		if have, err := os.ReadFile(m.stampFile(p.root)); err != nil || string(have) != m.stamp() {
			return fmt.Errorf("%s/%s was not made of the patches as they are now: run \"make patch\" first", outDir, m.name)
		}
	}
	if into != "" {
		if err := p.target(&into); err != nil {
			return err
		}
	}
	if err := errors.Join(p.checkEditsOfAdded()...); err != nil {
		return err
	}
	// Nothing is written before every module is known to be in order.
	changed := map[*patch]*patch{}
	for _, m := range p.modules {
		if err := m.remake(p.root, into, changed); err != nil {
			return err
		}
	}
	for pt, now := range changed {
		if now.diff == "" && len(now.added) == 0 {
			return fmt.Errorf("%s would be empty: take it out of %s", pt.name, seriesFile)
		}
		now.setSize()
		if len(pt.inline) == 0 && now.header == pt.header && now.diff == pt.diff && maps.Equal(now.added, pt.added) {
			continue
		}
		*pt = *now
		if err := pt.write(p.root); err != nil {
			return err
		}
		fmt.Printf("updated %s/%s: %s\n", patchDir, pt.name, pt.size())
	}
	// The copies are what the patches now make of the base.
	for _, m := range p.modules {
		if err := os.WriteFile(m.stampFile(p.root), []byte(m.stamp()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// target finds the patch that into names, or adds it at the end of the series.
func (p *project) target(into *string) error {
	name := strings.TrimPrefix(*into, patchDir+"/")
	if !strings.HasSuffix(name, ".patch") {
		name += ".patch"
	}
	*into = name
	for _, pt := range p.series {
		if pt.name == name {
			return nil
		}
	}
	m := p.module(filepath.Dir(name))
	if m == nil || !patchName.MatchString(filepath.Base(name)) {
		return fmt.Errorf("%q is not the name of a patch: want MODULE/NNNN-title, such as kubernetes/0003-a-seam", name)
	}
	pt := &patch{name: name, header: headerTemplate, added: map[string]string{}}
	if n := len(p.series); n > 0 && p.series[n-1].number() >= pt.number() {
		return fmt.Errorf("%s: a new patch needs a number above %s, the highest so far: numbers are never used twice", name, p.series[n-1].number())
	}
	p.series = append(p.series, pt)
	m.patches = append(m.patches, pt)
	series, err := os.OpenFile(filepath.Join(p.root, seriesFile), os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(series, name)
	return errors.Join(err, series.Close())
}

// remake computes each patch of the module from the base, the patches before it and the copy.
func (m *module) remake(root, into string, remade map[*patch]*patch) error {
	base, err := m.base()
	if err != nil {
		return err
	}
	changed, err := changedFiles(base, m.tree(root))
	if err != nil {
		return err
	}
	touched := map[string]*patch{} // file of upstream -> the last patch that touches it
	adder := map[string]*patch{}   // file that upstream does not have -> the patch that adds it
	var intoPatch *patch
	for _, pt := range m.patches {
		for _, f := range pt.edits() {
			touched[f] = pt
		}
		for f := range pt.added {
			adder[f] = pt
		}
		if pt.name == into {
			intoPatch = pt
		}
		now := *pt
		now.added, now.inline = map[string]string{}, nil
		remade[pt] = &now
	}
	extra := map[string]bool{} // files of upstream for into
	var loose []string
	for _, f := range changed {
		isNew := !exists(filepath.Join(base, f))
		owner := touched[f]
		if isNew {
			owner = adder[f]
		}
		if owner == nil {
			loose = append(loose, f)
			owner = intoPatch
			extra[f] = !isNew
		}
		if isNew && owner != nil {
			text, err := os.ReadFile(filepath.Join(m.tree(root), f))
			if err != nil {
				return err
			}
			remade[owner].added[f] = string(text)
		}
	}
	if len(loose) > 0 && intoPatch == nil {
		return fmt.Errorf("%s was edited but no patch touches it: say which takes it, as in \"make update-patches PATCH=%s/NNNN-title\"", strings.Join(loose, ", "), m.name)
	}

	work, err := os.MkdirTemp("", "staging-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	state := filepath.Join(work, "state") // the touched files after the patches so far
	for f := range touched {
		if err := copyFile(filepath.Join(base, f), filepath.Join(state, f)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(state, 0o755); err != nil {
		return err
	}
	for _, pt := range m.patches {
		files := pt.edits()
		before, after := filepath.Join(work, "a"), filepath.Join(work, "b")
		if pt.name == into {
			for f, isEdit := range extra {
				if !isEdit {
					continue
				}
				files = append(files, f)
				if err := copyFile(filepath.Join(base, f), filepath.Join(before, f)); err != nil {
					return err
				}
			}
		}
		for _, f := range pt.edits() {
			if err := copyFile(filepath.Join(state, f), filepath.Join(before, f)); err != nil {
				return err
			}
		}
		if _, err := pt.applyTo(state, m); err != nil {
			return err
		}
		for _, f := range files {
			source := filepath.Join(state, f)
			if last := touched[f]; last == nil || last == pt {
				source = filepath.Join(m.tree(root), f)
			}
			if err := copyFile(source, filepath.Join(after, f)); err != nil {
				return err
			}
		}
		if remade[pt].diff, err = diff(work); err != nil {
			return err
		}
		if err := errors.Join(os.RemoveAll(before), os.RemoveAll(after)); err != nil {
			return err
		}
	}
	return nil
}

// diff compares the folders a and b below work, in the form that the patches have.
func diff(work string) (string, error) {
	for _, side := range []string{"a", "b"} {
		if err := os.MkdirAll(filepath.Join(work, side), 0o755); err != nil {
			return "", err
		}
	}
	out, _, err := command(work, "git", "diff", "--no-index", "--no-color", "--no-ext-diff", "--no-renames", "--no-prefix", "--unified=3", "a", "b")
	var failed *commandError
	if errors.As(err, &failed) && failed.stderr != "" {
		return "", err // exit status 1 alone says that there are differences
	}
	var text strings.Builder
	for line := range strings.Lines(out) {
		switch {
		case strings.HasPrefix(line, "index "): // says nothing to a reader, and differs between git versions
		case strings.HasPrefix(line, "diff --git "):
			// For an added or removed file git names one side twice.
			_, file, _ := strings.Cut(strings.Fields(line)[2], "/")
			fmt.Fprintf(&text, "diff --git a/%s b/%s\n", file, file)
		default:
			text.WriteString(line)
		}
	}
	return text.String(), nil
}

// changedFiles lists the files that differ between two folders, or stand in one of them only, sorted.
func changedFiles(base, tree string) ([]string, error) {
	files := map[string]bool{}
	for _, dir := range []string{base, tree} {
		err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			rel, err := filepath.Rel(dir, file)
			files[rel] = true
			return err
		})
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s does not exist: run \"make patch\" first", tree)
		}
		if err != nil {
			return nil, err
		}
	}
	var changed []string
	for f := range files {
		a, errA := os.ReadFile(filepath.Join(base, f))
		b, errB := os.ReadFile(filepath.Join(tree, f))
		if (errA == nil) != (errB == nil) || !bytes.Equal(a, b) {
			changed = append(changed, f)
		}
	}
	sort.Strings(changed)
	return changed, nil
}

// copyFile copies a file if there is one: a patch may remove files.
func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644))
}
