// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// staging is where upstream's files are once the patches are applied.
const staging = "_output/staging/"

// RestsOn returns a digest of what a row of a scenario rests on: the file of the scenario, and those that the mutant edits, and how, if it is not a gate
// that switches the protection off. One of upstream's is made by the patches that name it. root is that of the checkout.
func (r ScenarioRow) RestsOn(root string) (string, error) {
	files, err := scenarioFiles(root)
	if err != nil {
		return "", err
	}
	file, ok := files[r.Scenario]
	if !ok {
		return "", fmt.Errorf("docs/scenarios.md has no scenario %d, %s", r.Number, r.Title)
	}
	name, ok := strings.CutPrefix(r.By, "mutant ")
	if !ok {
		return digest(root, []string{file})
	}
	m, err := Find(unquoted(name))
	if err != nil {
		return "", err
	}
	return m.restsOn(root, file)
}

// RestsOn returns a digest of what a row of a test rests on: the file of the test, what a history of that name is kept in, how random histories are drawn, the files
// that the mutant edits, and how.
func (r TestRow) RestsOn(root string) (string, error) {
	i := slices.IndexFunc(Tests(), func(t Tested) bool { return t.Name == r.Mutant })
	if i < 0 {
		return "", fmt.Errorf("no test has to miss the mutant %q", r.Mutant)
	}
	t := Tests()[i]
	files, err := t.files(root)
	if err != nil {
		return "", err
	}
	return t.restsOn(root, files...)
}

// files are those of the test.
func (t Tested) files(root string) (files []string, err error) {
	name, history, _ := strings.Cut(t.Test, "/")
	if files, err = containing(root, filepath.Join(t.Package, "*_test.go"), "\nfunc "+name+"(t *testing.T) {"); err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no test %s", t.Package, name)
	}
	var more []string
	switch {
	case strings.HasSuffix(history, ".json"):
		more, err = found(root, filepath.Join(t.Package, "testdata", "*", history))
	case SeedsOf[name] != "":
		more, err = found(root, filepath.Join(t.Package, "internal", "schedule", "*.go"))
	}
	return append(files, more...), err
}

// restsOn is a digest of the files, of those that the mutant edits, and of the edits.
func (m Mutant) restsOn(root string, files ...string) (string, error) {
	edits := m.edits()
	for _, edit := range edits {
		made, err := sources(root, edit.File)
		if err != nil {
			return "", err
		}
		files = append(files, made...)
	}
	return digest(root, files, edits...)
}

// sources are what a file comes from that is edited: one of upstream's is made by patches, or lies beside them.
func sources(root, file string) (files []string, err error) {
	inside, ok := strings.CutPrefix(file, staging)
	if !ok {
		return []string{file}, nil
	}
	module, inside, _ := strings.Cut(inside, "/")
	files, err = containing(root, filepath.Join("staging-patches", module, "*.patch"), "\n+++ b/"+inside+"\n")
	if err != nil || len(files) > 0 {
		return files, err
	}
	return found(root, filepath.Join("staging-patches", module, "_files", "*", inside))
}

// containing are the files of a pattern that have a text in them.
func containing(root, pattern, text string) (files []string, err error) {
	all, err := found(root, pattern)
	if err != nil {
		return nil, err
	}
	for _, file := range all {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		if bytes.Contains(content, []byte(text)) {
			files = append(files, file)
		}
	}
	return files, nil
}

// found are the files of a pattern, of which there is one at least.
func found(root, pattern string) (files []string, err error) {
	paths, err := filepath.Glob(filepath.Join(root, pattern))
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("there is no %s", pattern)
	}
	for _, path := range paths {
		file, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, err
}

// digest is short: it is to find what has changed by mistake. Comments and the form of Go code do not count.
func digest(root string, files []string, edits ...Mutant) (string, error) {
	slices.Sort(files)
	sum := sha256.New()
	for _, edit := range edits {
		fmt.Fprintf(sum, "%q %q %q\n", edit.File, edit.Old, edit.New)
	}
	for _, file := range slices.Compact(files) {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%q\n", filepath.ToSlash(file))
		if filepath.Ext(file) == ".go" {
			writeCode(sum, content)
		} else {
			fmt.Fprintf(sum, "%q\n", content)
		}
	}
	return fmt.Sprintf("%.4x", sum.Sum(nil)), nil
}

// writeCode writes the tokens of Go code, without comments.
func writeCode(w io.Writer, content []byte) {
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(content)), content, nil, 0)
	for {
		_, tok, literal := s.Scan()
		if tok == token.EOF {
			return
		}
		if tok == token.SEMICOLON {
			literal = "" // It says whether the semicolon was written.
		}
		fmt.Fprintf(w, "%s %q\n", tok, literal)
	}
}

// scenarioFiles reads docs/scenarios.md, which is of the code.
func scenarioFiles(root string) (map[Scenario]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "scenarios.md"))
	if err != nil {
		return nil, err
	}
	out := map[Scenario]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		s := Scenario{}
		if len(cells) < 6 {
			continue
		}
		if _, err := fmt.Sscanf(cells[0], "| %d", &s.Number); err != nil {
			continue
		}
		s.Title = cells[1]
		_, file, _ := strings.Cut(cells[5], "](../")
		out[s] = strings.TrimSuffix(file, ")")
	}
	return out, nil
}
