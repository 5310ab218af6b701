// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/build/stamp"
)

const changelogFile = "CHANGELOG.md"

// notes are what a release says of itself: what it is, and what has changed, if there is a changelog.
func notes(root string, info stamp.Stamp) ([]byte, error) {
	var out strings.Builder
	fmt.Fprintf(&out, "# Fresh KCM %s\n\nkube-controller-manager %s with the patches of Fresh KCM, built from commit %s.\n", info.Version, info.Base, info.Revision())
	fmt.Fprintf(&out, "The image is %s. How to verify this release: docs/release.md.\n", info.Image)
	changelog, err := os.ReadFile(filepath.Join(root, changelogFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []byte(out.String()), nil
	case err != nil:
		return nil, err
	}
	changes, err := section(string(changelog), info.Version)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(&out, "\n## Changes\n\n%s\n", changes)
	return []byte(out.String()), nil
}

// section is what the changelog has below the version's heading of the second level.
func section(changelog, version string) (string, error) {
	var found []string
	inside := false
	for line := range strings.Lines(changelog) {
		if heading, isHeading := strings.CutPrefix(line, "## "); isHeading {
			inside = slices.Contains(strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(heading)), version)
			continue
		}
		if inside {
			found = append(found, line)
		}
	}
	text := strings.TrimSpace(strings.Join(found, ""))
	if text == "" {
		return "", fmt.Errorf("%s says nothing of %s: write a section for it", changelogFile, version)
	}
	return text, nil
}
