// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Marks around what a page has from results.
const (
	pageBegin = "<!-- results: begin -->"
	pageEnd   = "<!-- results: end -->"

	modelBegin = "<!-- model: begin -->"
	modelEnd   = "<!-- model: end -->"
)

// ModelFile, beside the folders of results, has the Markdown that hack/tools/bench/model made of them. It may be missing.
const ModelFile = "model.txt"

// Page returns a page's text with the results of every folder below root, and the model of them, between its marks. link
// leads from the page to root.
func Page(text, root, link string) (string, error) {
	model, err := os.ReadFile(filepath.Join(root, ModelFile))
	if errors.Is(err, fs.ErrNotExist) {
		model = []byte("No model yet: it takes kept results of three sizes of cluster.\n")
	} else if err != nil {
		return "", err
	}
	if text, err = replace(text, modelBegin, modelEnd, string(model)); err != nil {
		return "", err
	}
	folders, err := filepath.Glob(filepath.Join(root, "*", RunFile))
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, file := range folders {
		dir := filepath.Dir(file)
		r, err := Read(dir)
		if err != nil {
			return "", fmt.Errorf("%s: %w", dir, err)
		}
		name := filepath.Base(dir)
		fmt.Fprintf(&out, "\n### %s\n\n%s", name, r.Table())
		pictures, err := r.pictures(dir, link+"/"+name)
		if err != nil {
			return "", err
		}
		out.WriteString(pictures)
	}
	if len(folders) == 0 {
		out.WriteString("\nNo run has been kept yet.\n")
	}
	return replace(text, pageBegin, pageEnd, out.String())
}

// replace puts text between two marks of a page.
func replace(page, begin, end, text string) (string, error) {
	before, rest, ok := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return "", fmt.Errorf("the page lacks the marks %s and %s", begin, end)
	}
	return before + begin + "\n" + text + "\n" + end + after, nil
}

// pictures links to the pictures that were drawn.
func (r Results) pictures(dir, link string) (string, error) {
	var out strings.Builder
	for _, b := range r.Benchmarks {
		file := strings.ToLower(camel(b.Name)) + ".svg"
		switch _, err := os.Stat(filepath.Join(dir, file)); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", err
		}
		fmt.Fprintf(&out, "\n![%s: medians of each arm, as multiples of %s](%s/%s)\n", b.Title, b.Arms[0], link, file)
	}
	return out.String(), nil
}
