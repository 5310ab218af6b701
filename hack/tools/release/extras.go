// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/rootfs"
)

// extras are the folders and files of the checkout that a release has, and where.
var extras = map[string]string{
	"LICENSE":          "LICENSE",
	"OWNERS":           "OWNERS",
	"SECURITY.md":      "SECURITY.md",
	"build/manifests":  "manifests",
	"build/monitoring": "monitoring",
	"docs":             "docs",
}

// readExtras reads what git knows of the extras, without Go's sources and tests. The links of pages lead to where the
// release has what they lead to in the checkout; one to what the release lacks becomes plain text.
func readExtras(root string) ([]rootfs.File, error) {
	place := map[string]string{} // of files and folders: path in the checkout to path in the release
	var names []string
	for from, to := range extras {
		out, err := exec.Command("git", "-C", root, "ls-files", "-z", "--", from).Output()
		if err != nil {
			return nil, fmt.Errorf("git ls-files %s: %w", from, err)
		}
		for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
			if strings.HasSuffix(name, ".go") || strings.Contains(name, "/testdata/") || strings.Contains(name, "_test.") {
				continue
			}
			names = append(names, name)
			for within := name; ; within = path.Dir(within) {
				place[within] = to + strings.TrimPrefix(within, from)
				if within == from {
					break
				}
			}
		}
	}
	files := make([]rootfs.File, len(names))
	for i, name := range names {
		files[i] = rootfs.File{Path: place[name], Mode: 0o644, Source: filepath.Join(root, name)}
		if path.Ext(name) != ".md" {
			continue
		}
		page, err := os.ReadFile(files[i].Source)
		if err != nil {
			return nil, err
		}
		if page, err = relink(page, name, place); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[i].Source, files[i].Data = "", page
	}
	return files, nil
}

// link is a link in Markdown: its text, the file that it leads to, and the heading there.
var link = regexp.MustCompile(`\[([^\]\[]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)`)

// relink leads the relative links of a page to where the release has their files.
func relink(page []byte, name string, place map[string]string) ([]byte, error) {
	var failed error
	return link.ReplaceAllFunc(page, func(found []byte) []byte {
		parts := link.FindSubmatch(found)
		to, there := place[path.Join(path.Dir(name), string(parts[2]))]
		if !there {
			return parts[1]
		}
		relative, err := filepath.Rel(path.Dir(place[name]), to)
		if err != nil {
			failed = err
		}
		return fmt.Appendf(nil, "[%s](%s%s)", parts[1], filepath.ToSlash(relative), parts[3])
	}), failed
}
