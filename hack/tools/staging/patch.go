// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// headerFields are what every patch says of itself, in this order. Upstream is the pull request, issue or KEP that the
// patch answers, or that none was found, and what was searched; update writes Size.
var headerFields = []string{"Description", "Why downstream", "Upstream", "Differs from upstream", "Gate", "Drop when", "Size"}

var patchName = regexp.MustCompile(`^([0-9]{4})-[a-z0-9][a-z0-9-]*\.patch$`)

// patch is one entry of the series: a file with a header, an empty line and a unified diff of what upstream has, and
// a folder of the files that upstream does not have.
type patch struct {
	name   string // kubernetes/0001-title.patch
	header string // with the empty line that ends it
	diff   string
	added  map[string]string // path in the module -> text
	// inline are files in added that the diff made when it was read: update moves them to the folder.
	inline []string
}

// filesDir is the module's folder, below staging-patches/, of the files that its patches add. Go takes a folder with
// this name for no package: the files are compiled in the copies only.
const filesDir = "_files"

// dir is the folder of the files that the patch adds.
func (p *patch) dir(root string) string {
	return filepath.Join(root, patchDir, path.Dir(p.name), filesDir, strings.TrimSuffix(path.Base(p.name), ".patch"))
}

func loadPatch(root, name string) (*patch, error) {
	text, err := os.ReadFile(filepath.Join(root, patchDir, name))
	if err != nil {
		return nil, err
	}
	header, diff, found := strings.Cut(string(text), "\n\ndiff --git ")
	if found {
		diff = "diff --git " + diff
	}
	p := &patch{name: name, header: strings.TrimRight(header, "\n") + "\n\n", diff: diff, added: map[string]string{}}
	if err := p.loadFiles(root); err != nil {
		return nil, err
	}
	if err := p.takeInline(); err != nil {
		return nil, err
	}
	if p.diff == "" && len(p.added) == 0 {
		return nil, fmt.Errorf("%s: no empty line and diff after the header, and no files", name)
	}
	return p, nil
}

// loadFiles reads the patch's folder, if it has one.
func (p *patch) loadFiles(root string) error {
	dir := p.dir(root)
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		p.added[filepath.ToSlash(name)] = string(text)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// takeInline moves files that the diff makes to added, so that everything else treats them alike.
func (p *patch) takeInline() error {
	var rest strings.Builder
	for _, f := range splitDiff(p.diff) {
		if !f.adds() {
			rest.WriteString(f.header + joinHunks(f.hunks))
			continue
		}
		if _, twice := p.added[f.name]; twice {
			return fmt.Errorf("%s adds %s, which its folder %s has, too", p.name, f.name, filesDir)
		}
		p.added[f.name] = f.text()
		p.inline = append(p.inline, f.name)
	}
	p.diff = rest.String()
	return nil
}

func (p *patch) number() string { return patchName.FindString(path.Base(p.name))[:4] }

// adds lists the files that the patch adds, sorted.
func (p *patch) adds() []string { return slices.Sorted(maps.Keys(p.added)) }

// edits lists the files of upstream that the patch changes, sorted.
func (p *patch) edits() []string {
	seen := map[string]bool{}
	for line := range strings.Lines(p.diff) {
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "diff --git a/"); ok {
			file, _, _ := strings.Cut(rest, " b/")
			seen[file] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// size counts lines.
type size struct {
	edited int // added to and removed from files of upstream
	added  int // in files that upstream does not have
	tests  int // in tests among these, which added leaves out
}

func (s size) String() string {
	return fmt.Sprintf("%d lines edited, %d added, %d of tests", s.edited, s.added, s.tests)
}

func (p *patch) size() (s size) {
	for _, f := range splitDiff(p.diff) {
		for _, h := range f.hunks {
			for line := range strings.Lines(h.text) {
				if line[0] == '+' || line[0] == '-' {
					s.edited++
				}
			}
		}
	}
	for name, text := range p.added {
		n := len(slices.Collect(strings.Lines(text)))
		if strings.HasSuffix(name, "_test.go") {
			s.tests += n
		} else {
			s.added += n
		}
	}
	return s
}

var sizeField = regexp.MustCompile(`(?m)^Size:.*(\n  .*)*$`)

// setSize writes the Size of the header anew.
func (p *patch) setSize() {
	p.header = sizeField.ReplaceAllLiteralString(p.header, "Size: "+p.size().String())
}

// fields parses the header: "Name: value", continued by lines that start with two spaces.
func (p *patch) fields() (names []string, values map[string]string, err error) {
	values = map[string]string{}
	last := ""
	for line := range strings.SplitSeq(strings.TrimSpace(p.header), "\n") {
		if strings.HasPrefix(line, "  ") && last != "" {
			values[last] += " " + strings.TrimSpace(line)
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, nil, fmt.Errorf("%s: header line %q is neither \"Field: text\" nor a continuation", p.name, line)
		}
		last = name
		names = append(names, name)
		values[name] = strings.TrimSpace(value)
	}
	return names, values, nil
}

func (p *patch) checkHeader() error {
	names, values, err := p.fields()
	if err != nil {
		return err
	}
	if strings.Join(names, "|") != strings.Join(headerFields, "|") {
		return fmt.Errorf("%s: header fields are %q, want %q", p.name, names, headerFields)
	}
	for _, name := range names {
		if values[name] == "" {
			return fmt.Errorf("%s: header field %q is empty", p.name, name)
		}
	}
	if want := p.size().String(); values["Size"] != want {
		return fmt.Errorf("%s: Size is %q, but the patch has %s: run \"make update-patches\"", p.name, values["Size"], want)
	}
	return nil
}

// write writes the patch and its files, and removes what is in its folder beside them.
func (p *patch) write(root string) error {
	text := p.header + p.diff
	if p.diff == "" {
		text = strings.TrimRight(text, "\n") + "\n"
	}
	file, dir := filepath.Join(root, patchDir, p.name), p.dir(root)
	err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644))
	for name, text := range p.added {
		err = errors.Join(err, writeFile(filepath.Join(dir, name), text))
	}
	return err
}

func writeFile(file, text string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644))
}
