// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// headerFields are what every patch says of itself, in this order (DESIGN 5). Size is the number of
// changed lines that the patch may not exceed.
var headerFields = []string{"Description", "Why downstream", "Differs from upstream", "Gate", "Drop when", "Size"}

var patchName = regexp.MustCompile(`^([0-9]{4})-[a-z0-9][a-z0-9-]*\.patch$`)

// patch is one file of the series: a header, an empty line, a unified diff.
type patch struct {
	name   string // kubernetes/0001-title.patch
	header string // with the empty line that ends it
	diff   string
}

func loadPatch(root, name string) (*patch, error) {
	text, err := os.ReadFile(filepath.Join(root, patchDir, name))
	if err != nil {
		return nil, err
	}
	header, diff, found := strings.Cut(string(text), "\n\ndiff --git ")
	if !found {
		return nil, fmt.Errorf("%s: no empty line and diff after the header", name)
	}
	return &patch{name: name, header: header + "\n\n", diff: "diff --git " + diff}, nil
}

func (p *patch) number() string { return patchName.FindString(path.Base(p.name))[:4] }

// files lists what the patch touches, sorted.
func (p *patch) files() []string {
	seen := map[string]bool{}
	for line := range strings.Lines(p.diff) {
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "diff --git a/"); ok {
			file, _, _ := strings.Cut(rest, " b/")
			seen[file] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// changedLines counts the lines that the diff adds and removes.
func (p *patch) changedLines() int {
	n := 0
	for line := range strings.Lines(p.diff) {
		if (line[0] == '+' && !strings.HasPrefix(line, "+++ ")) || (line[0] == '-' && !strings.HasPrefix(line, "--- ")) {
			n++
		}
	}
	return n
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
	size, err := strconv.Atoi(strings.TrimSuffix(values["Size"], " lines"))
	if err != nil {
		return fmt.Errorf("%s: Size is %q, want a number of lines such as \"40 lines\"", p.name, values["Size"])
	}
	if n := p.changedLines(); n > size {
		return fmt.Errorf("%s: changes %d lines, its Size allows %d: make it smaller (logic belongs in pkg/) or raise Size and say why", p.name, n, size)
	}
	return nil
}

func (p *patch) write(root string) error {
	file := filepath.Join(root, patchDir, p.name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(p.header+p.diff), 0o644)
}
