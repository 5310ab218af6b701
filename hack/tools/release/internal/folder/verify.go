// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/image"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/provenance"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/rootfs"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/sbom"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/signature"
)

// Verify checks a release against itself and against who may sign it, a file as ssh-keygen(1) describes it, and says
// through told what it has found to be right. The error names the first file that is not.
func Verify(dir string, allowedSigners []byte, told func(format string, args ...any)) error {
	sums, err := verifySums(dir, allowedSigners, told)
	if err != nil {
		return err
	}
	subjects, err := verifyProvenance(dir, sums)
	if err != nil {
		return err
	}
	told("provenance   of all files and images")
	digests := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		arch, isArchive := archOf(name)
		if !isArchive {
			continue
		}
		if digests["linux/"+arch], err = verifyArch(dir, arch, told); err != nil {
			return err
		}
	}
	if len(digests) == 0 {
		return errors.New("the release has no archive")
	}
	if err := verifyIndex(dir, digests, told); err != nil {
		return err
	}
	for _, digest := range digests {
		if !slices.Contains(slices.Collect(maps.Values(subjects)), digest) {
			return fmt.Errorf("%s: does not have the image sha256:%s", ProvenanceFile, digest)
		}
	}
	return nil
}

// archOf is the architecture of an archive by this name.
func archOf(name string) (string, bool) {
	arch, found := strings.CutPrefix(name, "fresh-kcm-linux-")
	if !found {
		return "", false
	}
	return strings.CutSuffix(arch, ".tar.gz")
}

// verifySums checks the signature, and then that there are exactly the files that were signed, as they were.
func verifySums(dir string, allowedSigners []byte, told func(string, ...any)) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, SumsFile))
	if err != nil {
		return nil, err
	}
	signed, err := os.ReadFile(filepath.Join(dir, SignatureFile))
	if err != nil {
		return nil, err
	}
	signer, err := signature.Verify(allowedSigners, signed, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", SumsFile, err)
	}
	told("signature    of %s, key %s", signer.Name, signer.Fingerprint)
	want, err := parseSums(string(text))
	if err != nil {
		return nil, err
	}
	got, err := sumsOf(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch sum, found := got[name]; {
		case !found:
			return nil, fmt.Errorf("%s: is missing", name)
		case sum != want[name]:
			return nil, fmt.Errorf("%s: differs from what was signed: SHA-256 is %s, want %s", name, sum, want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, found := want[name]; !found {
			return nil, fmt.Errorf("%s: is not part of what was signed", name)
		}
	}
	told("sums         of %d files", len(want))
	return want, nil
}

func verifyProvenance(dir string, sums map[string]string) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, ProvenanceFile))
	if err != nil {
		return nil, err
	}
	subjects, err := provenance.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ProvenanceFile, err)
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if name != ProvenanceFile && subjects[name] != sums[name] {
			return nil, fmt.Errorf("%s: says SHA-256 %q of %s, want %s", ProvenanceFile, subjects[name], name, sums[name])
		}
	}
	return subjects, nil
}

// verifyArch unpacks the archive and the image of one architecture, and returns the image's digest.
func verifyArch(dir, arch string, told func(string, ...any)) (string, error) {
	unpacked, err := os.MkdirTemp("", "release-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(unpacked)
	if err := unpack(filepath.Join(dir, ArchiveFile(arch)), unpacked); err != nil {
		return "", fmt.Errorf("%s: %w", ArchiveFile(arch), err)
	}
	found, err := filepath.Glob(filepath.Join(unpacked, "*", "kube-controller-manager"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%s: has no kube-controller-manager", ArchiveFile(arch))
	}
	binary, err := verifyBinary(found[0], arch, told)
	if err != nil {
		return "", fmt.Errorf("%s: %w", ArchiveFile(arch), err)
	}
	sum, err := sumOf(found[0])
	if err != nil {
		return "", err
	}
	digest, err := verifyImage(filepath.Join(dir, ImageFile(arch)), sum)
	if err != nil {
		return "", fmt.Errorf("%s: %w", ImageFile(arch), err)
	}
	told("linux/%s  image sha256:%s", arch, digest)
	bill, err := os.ReadFile(filepath.Join(dir, SBOMFile(arch)))
	if err != nil {
		return "", err
	}
	doc, err := sbom.Parse(bill)
	if err == nil {
		err = sbom.Check(doc, binary, sum)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", SBOMFile(arch), err)
	}
	told("linux/%s  bill of materials with %d packages, all that the binary was built of", arch, len(doc.Packages))
	return digest, nil
}

func unpack(file, dir string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	unpacked, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	return rootfs.ReadTar(unpacked, dir)
}

// verifyBinary checks what the binary was built for, and runs it where the machine can.
func verifyBinary(file, arch string, told func(string, ...any)) (*buildinfo.BuildInfo, error) {
	binary, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	settings := map[string]string{}
	for _, setting := range binary.Settings {
		settings[setting.Key] = setting.Value
	}
	if settings["GOARCH"] != arch || settings["GOOS"] != "linux" || settings["CGO_ENABLED"] != "0" {
		return nil, fmt.Errorf("the binary is for %s/%s with CGO_ENABLED=%s", settings["GOOS"], settings["GOARCH"], settings["CGO_ENABLED"])
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != arch {
		told("linux/%s  built for it; not run, because this machine is %s/%s", arch, runtime.GOOS, runtime.GOARCH)
		return binary, nil
	}
	out, err := exec.Command(file, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("kube-controller-manager --version: %w", err)
	}
	version, isVersion := strings.CutPrefix(strings.TrimSpace(string(out)), "Kubernetes ")
	// The folder in the archive has the version that the release says of itself.
	if want := filepath.Base(filepath.Dir(file)) + "/"; !isVersion || topFolder(version) != want {
		return nil, fmt.Errorf("kube-controller-manager --version says %q in the folder %s", version, want)
	}
	told("linux/%s  runs and says %s", arch, version)
	return binary, nil
}

// verifyImage checks all digests in an image's archive, and that it has the binary with this sum.
func verifyImage(file, binary string) (string, error) {
	archive, err := image.Open(file)
	if err != nil {
		return "", err
	}
	defer archive.Close()
	if err := archive.Validate(); err != nil {
		return "", err
	}
	img, err := archive.Image()
	if err != nil {
		return "", err
	}
	sum, err := image.SHA256(img, rootfs.Binary)
	if err != nil {
		return "", err
	}
	if sum != binary {
		return "", fmt.Errorf("has a kube-controller-manager with SHA-256 %s, the archive's has %s", sum, binary)
	}
	return archive.Digest.Hex, nil
}

// verifyIndex checks that the index has the images of all architectures, if there are several.
func verifyIndex(dir string, digests map[string]string, told func(string, ...any)) error {
	archive, err := image.Open(filepath.Join(dir, IndexFile))
	if errors.Is(err, fs.ErrNotExist) && len(digests) == 1 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", IndexFile, err)
	}
	defer archive.Close()
	images, err := archive.Images()
	if err != nil {
		return fmt.Errorf("%s: %w", IndexFile, err)
	}
	for platform, digest := range digests {
		if images[platform].Hex != digest {
			return fmt.Errorf("%s: has another image for %s than %s", IndexFile, platform, digest)
		}
	}
	if err := archive.Validate(); err != nil {
		return fmt.Errorf("%s: %w", IndexFile, err)
	}
	told("index        sha256:%s of %d images", archive.Digest.Hex, len(images))
	return nil
}
