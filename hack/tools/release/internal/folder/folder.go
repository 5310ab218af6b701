// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package folder writes a release into a folder, and verifies one.
package folder

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files of every release. All others are in SumsFile, and a signature of that is in SignatureFile.
const (
	SumsFile       = "SHA256SUMS"
	SignatureFile  = "SHA256SUMS.sig"
	SignersFile    = "allowed_signers"
	ProvenanceFile = "provenance.intoto.json"
	NotesFile      = "NOTES.md"
	// IndexFile has the images of all architectures, as an OCI layout.
	IndexFile = "kube-controller-manager.oci.tar"
)

// ImageFile has the image of one architecture, for `ctr images import` and `docker load`.
func ImageFile(arch string) string { return "kube-controller-manager-linux-" + arch + ".tar" }

// ArchiveFile has the binary of one architecture, and licences.
func ArchiveFile(arch string) string { return "fresh-kcm-linux-" + arch + ".tar.gz" }

// SBOMFile has the bill of materials of the image of one architecture.
func SBOMFile(arch string) string { return "kube-controller-manager-linux-" + arch + ".spdx.json" }

// unsummed are the files that SumsFile cannot have.
var unsummed = []string{SumsFile, SignatureFile, SignersFile}

// list are the paths of all files in a release that are to have a sum, sorted.
func list(dir string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if name = filepath.ToSlash(name); !slices.Contains(unsummed, name) {
			names = append(names, name)
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// sumOf is the SHA-256 of a file.
func sumOf(file string) (string, error) {
	in, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer in.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, in); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// sumsOf are the sums of all files in a release.
func sumsOf(dir string) (map[string]string, error) {
	names, err := list(dir)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for _, name := range names {
		if sums[name], err = sumOf(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// parseSums reads what sha256sum writes.
func parseSums(text string) (map[string]string, error) {
	sums := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		sum, name, found := strings.Cut(lines.Text(), "  ")
		if !found || len(sum) != hex.EncodedLen(sha256.Size) {
			return nil, fmt.Errorf("%s: %q is not a sum and a file", SumsFile, lines.Text())
		}
		sums[name] = sum
	}
	return sums, nil
}
