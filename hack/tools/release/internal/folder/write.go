// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/build/stamp"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/image"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/licenses"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/provenance"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/rootfs"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/sbom"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/signature"
)

// Build is what was built for one architecture.
type Build struct {
	Binary   string // the file
	Licences licenses.Texts
}

// Release is what a release is made of.
type Release struct {
	Stamp  stamp.Stamp
	Builds map[string]Build // by architecture
	Images string           // the folder with ImageFile and, of several architectures, IndexFile
	Roots  string           // version of the certificate authorities in the image
	Extras []rootfs.File    // manifests and documents
	Notes  []byte
	Key    []byte // signs SumsFile, in OpenSSH's form
	Signer string // whose key that is
}

// Write makes the release in a new folder. The same release gives the same bytes.
func Write(dir string, r Release) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := rootfs.WriteDir(dir, []rootfs.Layer{{Files: r.Extras}}); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, NotesFile), r.Notes, 0o644); err != nil {
		return err
	}
	subjects := map[string]string{}
	binaries := map[string]*buildinfo.BuildInfo{}
	for _, arch := range slices.Sorted(maps.Keys(r.Builds)) {
		var err error
		var digest string
		if binaries[arch], digest, err = writeArch(dir, arch, r); err != nil {
			return fmt.Errorf("linux/%s: %w", arch, err)
		}
		subjects[r.Stamp.Image+" linux/"+arch] = digest
	}
	if len(r.Builds) > 1 {
		digest, err := copyImage(dir, r, IndexFile)
		if err != nil {
			return err
		}
		subjects[r.Stamp.Image] = digest
	}
	sums, err := sumsOf(dir)
	if err != nil {
		return err
	}
	maps.Copy(subjects, sums)
	statement, err := provenance.Marshal(provenance.Release{Stamp: r.Stamp, Subjects: subjects, Binaries: binaries})
	if err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, ProvenanceFile), statement, 0o644); err != nil {
		return err
	}
	return writeSums(dir, r)
}

// writeArch writes all that is of one architecture, and returns what its binary was built of and its image's digest.
func writeArch(dir, arch string, r Release) (*buildinfo.BuildInfo, string, error) {
	build := r.Builds[arch]
	binary, err := buildinfo.ReadFile(build.Binary)
	if err != nil {
		return nil, "", err
	}
	stamped, err := contains(build.Binary, r.Stamp.Commit)
	if err != nil {
		return nil, "", err
	}
	if !stamped {
		return nil, "", fmt.Errorf("%s is not of the commit %s: run make image", build.Binary, r.Stamp.Commit)
	}
	sum, err := sumOf(build.Binary)
	if err != nil {
		return nil, "", err
	}
	digest, err := copyImage(dir, r, ImageFile(arch))
	if err != nil {
		return nil, "", err
	}
	bill, err := sbom.Marshal(sbom.Image{
		Stamp: r.Stamp, Arch: arch, Binary: binary, BinarySHA256: sum, Digest: digest, Roots: r.Roots, Licences: build.Licences,
	})
	if err != nil {
		return nil, "", fmt.Errorf("bill of materials: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, SBOMFile(arch)), bill, 0o644); err != nil {
		return nil, "", err
	}
	return binary, digest, writeArchive(filepath.Join(dir, ArchiveFile(arch)), build, r.Stamp)
}

// contains says whether a binary has a text in it, such as the commit that the build stamps: it cannot be asked on a
// machine of another architecture.
func contains(binary, text string) (bool, error) {
	data, err := os.ReadFile(binary)
	return bytes.Contains(data, []byte(text)), err
}

// topFolder is the folder that an archive unpacks to.
func topFolder(version string) string { return "fresh-kcm-" + version + "/" }

func writeArchive(file string, build Build, info stamp.Stamp) error {
	top := topFolder(info.Version)
	files := []rootfs.File{{Path: top + "kube-controller-manager", Mode: 0o755, Source: build.Binary}}
	for name, text := range build.Licences.Files() {
		files = append(files, rootfs.File{Path: top + "licenses/" + name, Mode: 0o644, Data: text})
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	packed := gzip.NewWriter(out)
	if err := (rootfs.Layer{Files: files}).WriteTar(packed, info.Date); err != nil {
		return err
	}
	if err := packed.Close(); err != nil {
		return err
	}
	return out.Close()
}

// copyImage copies an archive that `make image` has made, and returns the digest of what is in it, without "sha256:".
func copyImage(dir string, r Release, name string) (string, error) {
	from := filepath.Join(r.Images, name)
	archive, err := image.Open(from)
	if err != nil {
		return "", fmt.Errorf("%s: %w", from, err)
	}
	defer archive.Close()
	if name != IndexFile {
		img, err := archive.Image()
		if err != nil {
			return "", err
		}
		config, err := img.ConfigFile()
		if err != nil {
			return "", err
		}
		if made := config.Config.Labels[image.RevisionLabel]; made != r.Stamp.Revision() {
			return "", fmt.Errorf("%s is of the commit %s, the release of %s: run make image", from, made, r.Stamp.Revision())
		}
	}
	in, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer in.Close()
	out, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return "", err
	}
	return archive.Digest.Hex, out.Close()
}

func writeSums(dir string, r Release) error {
	sums, err := sumsOf(dir)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&text, "%s  %s\n", sums[name], name)
	}
	signed, err := signature.Sign(r.Key, []byte(text.String()))
	if err != nil {
		return err
	}
	signer, err := signature.AllowedSigner(r.Signer, r.Key)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{SumsFile: []byte(text.String()), SignatureFile: signed, SignersFile: signer} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
