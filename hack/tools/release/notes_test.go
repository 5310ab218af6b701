// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/build/stamp"
)

const changelog = `# Changelog

## [v1.37.0+fresh.10] - unreleased

Tenth.

## [v1.37.0+fresh.1] - 2026-11-22

### Added

- First.

## v1.36.0+fresh.1

Older.
`

func TestNotes(t *testing.T) {
	root := t.TempDir()
	info := stamp.Stamp{Version: "v1.37.0+fresh.1", Base: "v1.37.0", Commit: "c0ffee", TreeState: "clean", Image: "fresh-kcm.invalid/kcm:v1.37.0_fresh.1"}
	got, err := notes(root, info)
	require.NoError(t, err)
	assert.Contains(t, string(got), "built from commit c0ffee")
	assert.Contains(t, string(got), info.Image)

	require.NoError(t, os.WriteFile(filepath.Join(root, changelogFile), []byte(changelog), 0o644))
	got, err = notes(root, info)
	require.NoError(t, err)
	assert.Contains(t, string(got), "\n## Changes\n\n### Added\n\n- First.\n")
	assert.NotContains(t, string(got), "Tenth")
	assert.NotContains(t, string(got), "Older")

	info.Version = "v1.37.0+fresh.2"
	_, err = notes(root, info)
	assert.EqualError(t, err, "CHANGELOG.md says nothing of v1.37.0+fresh.2: write a section for it")
}

func TestCheckArchitectures(t *testing.T) {
	assert.NoError(t, checkArchitectures([]string{"arm64", "amd64"}))
	assert.EqualError(t, checkArchitectures([]string{"mips"}), `ARCH "mips" is unknown: there are amd64, arm64`)
}
