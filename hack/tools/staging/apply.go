// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// layout is part of every stamp: raise it when a change of this tool must remake the copies.
const layout = "2"

// apply makes every copy whose base or patches changed, and with force those that were edited. A copy is built aside and moved into place,
// so that an interrupted or failed run leaves the old one as it was.
func (p *project) apply(force bool) error {
	for _, m := range p.modules {
		want := m.stamp()
		stampFile := m.stampFile(p.root)
		have, err := os.ReadFile(stampFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		tree := m.tree(p.root)
		if string(have) == want && !(force && m.editedSinceApply(p.root) != "") {
			if _, err := os.Stat(tree); err == nil {
				continue
			}
		}
		if len(have) > 0 && !force {
			if edited := m.editedSinceApply(p.root); edited != "" {
				return fmt.Errorf("%s/%s was edited (%s) and its patches or base changed since: to keep the edits, go back to the patches that it was made of (git stash), run \"make update-patches\" and bring the change back; to lose them, run \"make patch FORCE=1\"", outDir, m.name, edited)
			}
		}
		fresh := filepath.Join(p.root, outDir, "."+m.name+".new")
		if err := m.make(p.root, fresh); err != nil {
			return errors.Join(err, os.RemoveAll(fresh))
		}
		if err := errors.Join(os.RemoveAll(tree), os.Rename(fresh, tree)); err != nil {
			return err
		}
		if err := os.WriteFile(stampFile, []byte(want), 0o644); err != nil {
			return err
		}
		files := 0
		for _, pt := range m.patches {
			files += len(pt.added)
		}
		fmt.Printf("patched %s %s: %d patches, %d files added\n", m.path, m.version, len(m.patches), files)
	}
	return nil
}

// stamp identifies what a copy was made of.
func (m *module) stamp() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s@%s\n", layout, m.path, m.version)
	for _, pt := range m.patches {
		fmt.Fprintf(h, "%s\n%s\n", pt.name, pt.diff)
		for _, f := range pt.adds() {
			fmt.Fprintf(h, "%s %d\n%s\n", f, len(pt.added[f]), pt.added[f])
		}
	}
	return fmt.Sprintf("%x\n", h.Sum(nil))
}

// stampFile holds the stamp of the copy; its time is that of the last apply or update.
func (m *module) stampFile(root string) string {
	return filepath.Join(root, outDir, "."+m.name+".stamp")
}

// editedSinceApply names one file or folder of the copy that changed after its stamp was written, or "".
func (m *module) editedSinceApply(root string) string {
	stamp, err := os.Stat(m.stampFile(root))
	if err != nil {
		return ""
	}
	edited := ""
	tree := m.tree(root)
	_ = filepath.WalkDir(tree, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil && info.ModTime().After(stamp.ModTime()) {
			edited, _ = filepath.Rel(tree, file)
			return fs.SkipAll
		}
		return nil
	})
	return edited
}

// make copies the published module to dir, lays the added files into it and applies the patches.
func (m *module) make(root, dir string) error {
	base, err := m.base()
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(dir), copyTree(base, dir)); err != nil {
		return err
	}
	for _, pt := range m.patches {
		if err := pt.checkNew(base, m); err != nil {
			return err
		}
		for f, text := range pt.added {
			if err := writeFile(filepath.Join(dir, f), text); err != nil {
				return err
			}
		}
		if _, err := pt.applyTo(dir, m); err != nil {
			return err
		}
	}
	return nil
}

var (
	rejected = regexp.MustCompile(`(?m)^(?:Checking|Applying) patch (\S+?)(?: with [0-9]+ rejects?)?\.\.\.$|^Rejected hunk #([0-9]+)\.$|^error: (\S+): (.+)$`)
	moved    = regexp.MustCompile(`(?m)^Hunk #[0-9]+ succeeded at .*$`)
)

// gitApplyCall applies a patch with all context lines matching (git's word for fuzz 0), and tells of each hunk.
const gitApplyCall = "apply -p1 --verbose --whitespace=nowarn"

// checkNew says that the base has a file which the patch adds.
func (p *patch) checkNew(base string, m *module) error {
	for _, f := range p.adds() {
		if exists(filepath.Join(base, f)) {
			return fmt.Errorf("%s/%s adds %s, which %s %s has: rename it, or make it an edit", patchDir, p.name, f, m.path, m.version)
		}
	}
	return nil
}

// applyTo applies the patch's edits to dir without fuzz. It returns the hunks that applied, but at another line than the
// patch says.
func (p *patch) applyTo(dir string, m *module) (offsets []string, err error) {
	if p.diff == "" {
		return nil, nil
	}
	_, said, err := commandIn(dir, p.diff, "git", append(strings.Fields(gitApplyCall), "--reject")...)
	var failed *commandError
	if err == nil {
		return moved.FindAllString(said, -1), nil
	} else if !errors.As(err, &failed) {
		return nil, err
	}
	current := ""
	for _, match := range rejected.FindAllStringSubmatch(failed.stderr, -1) {
		switch {
		case match[1] != "":
			current = match[1]
		case match[2] != "":
			return nil, fmt.Errorf("%s/%s: hunk #%s of %s does not apply to %s %s: refresh it (docs/rebase.md)", patchDir, p.name, match[2], current, m.path, m.version)
		case match[3] != "" && match[3] != "patch" && match[3] != "while":
			return nil, fmt.Errorf("%s/%s: %s: %s (%s %s)", patchDir, p.name, match[3], match[4], m.path, m.version)
		}
	}
	return nil, fmt.Errorf("%s/%s: %s", patchDir, p.name, strings.Join(strings.Split(failed.stderr, "\n"), "; "))
}

// copyTree copies a module folder; the copy is writable and its times are now.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, info.Mode().Perm()|0o200)
	})
}
