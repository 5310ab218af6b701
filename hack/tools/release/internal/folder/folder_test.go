// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/build/stamp"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/image"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/licenses"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/rootfs"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/signature"
)

// program stands in for kube-controller-manager.
const program = `package main

import "os"

func main() {
	os.Stdout.WriteString("Kubernetes v1.37.0+fresh.1\n")
	if len(os.Args) != 2 {
		os.Stdout.WriteString("` + commit + `")
	}
}
`

const commit = "0123456789abcdef0123456789abcdef01234567"

// builtDir has the program for both architectures; it is built once.
var builtDir string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	var err error
	if builtDir, err = os.MkdirTemp("", "folder-test-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(builtDir)
	files := []rootfs.File{{Path: "go.mod", Mode: 0o644, Data: []byte("module example.org/kcm\n\ngo 1.26\n")}, {Path: "main.go", Mode: 0o644, Data: []byte(program)}}
	if err := rootfs.WriteDir(builtDir, []rootfs.Layer{{Files: files}}); err != nil {
		return 0, err
	}
	for _, arch := range architectures {
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", arch, ".")
		build.Dir = builtDir
		build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := build.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%w\n%s", err, out)
		}
	}
	return m.Run(), nil
}

var architectures = []string{"amd64", "arm64"}

// newRelease is all that a release is made of, with images as `make image` makes them.
func newRelease(t *testing.T) Release {
	t.Helper()
	dir := t.TempDir()
	key, err := signature.TestKey(filepath.Join(dir, "key"))
	require.NoError(t, err)
	info := stamp.Stamp{
		Version: "v1.37.0+fresh.1", Image: "fresh-kcm.invalid/kcm:v1.37.0_fresh.1", Commit: commit, TreeState: "clean",
		Date: time.Unix(1_000_000_000, 0).UTC(),
	}
	r := Release{
		Stamp: info, Builds: map[string]Build{}, Images: dir, Roots: "v0.0.1", Notes: []byte("first\n"), Key: key, Signer: "test@example.org",
		Extras: []rootfs.File{{Path: "manifests/rbac.yaml", Mode: 0o644, Data: []byte("kind: List\n")}},
	}
	ref, err := name.NewTag(info.Image, name.StrictValidation)
	require.NoError(t, err)
	images := map[string]v1.Image{}
	for _, arch := range architectures {
		binary := filepath.Join(builtDir, arch)
		r.Builds[arch] = Build{Binary: binary, Licences: licenses.Texts{licenses.GoModule: {"LICENSE": []byte("BSD")}}}
		img, err := image.New(arch, image.Config(info), []rootfs.Layer{
			{Name: "binary", Files: []rootfs.File{{Path: rootfs.Binary, Mode: 0o755, Source: binary}}},
		}, info.Date)
		require.NoError(t, err)
		images[arch] = img
		require.NoError(t, image.WriteImage(filepath.Join(dir, ImageFile(arch)), ref, img, info.Date))
	}
	require.NoError(t, image.WriteIndex(filepath.Join(dir, IndexFile), ref, image.Index(images), info.Date))
	return r
}

func allowed(t *testing.T, r Release) []byte {
	t.Helper()
	line, err := signature.AllowedSigner(r.Signer, r.Key)
	require.NoError(t, err)
	return line
}

func TestRelease(t *testing.T) {
	r := newRelease(t)
	dirs := []string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		require.NoError(t, Write(dir, r))
	}
	first, err := sumsOf(dirs[0])
	require.NoError(t, err)
	second, err := sumsOf(dirs[1])
	require.NoError(t, err)
	assert.Equal(t, first, second, "two releases of the same differ")
	assert.Equal(t, []string{
		"NOTES.md", "fresh-kcm-linux-amd64.tar.gz", "fresh-kcm-linux-arm64.tar.gz", "kube-controller-manager-linux-amd64.spdx.json",
		"kube-controller-manager-linux-amd64.tar", "kube-controller-manager-linux-arm64.spdx.json", "kube-controller-manager-linux-arm64.tar",
		"kube-controller-manager.oci.tar", "manifests/rbac.yaml", "provenance.intoto.json",
	}, slices.Sorted(maps.Keys(first)))

	var told bytes.Buffer
	require.NoError(t, Verify(dirs[0], allowed(t, r), func(format string, args ...any) { fmt.Fprintf(&told, format+"\n", args...) }))
	assert.Contains(t, told.String(), "linux/"+runtime.GOARCH+"  runs and says v1.37.0+fresh.1")
	assert.Contains(t, told.String(), "of 2 images")

	t.Run("sha256sum", func(t *testing.T) {
		if _, err := exec.LookPath("sha256sum"); err != nil {
			t.Skip("sha256sum is missing: install coreutils")
		}
		check := exec.Command("sha256sum", "--check", "--strict", SumsFile)
		check.Dir = dirs[0]
		out, err := check.CombinedOutput()
		assert.NoError(t, err, string(out))
	})
}

// Whoever changes a release without the key is found, and so is a release that was signed and does not hold together.
func TestVerifyRefuses(t *testing.T) {
	r := newRelease(t)
	good := t.TempDir()
	require.NoError(t, Write(good, r))
	other := r
	var err error
	other.Key, err = signature.TestKey(filepath.Join(t.TempDir(), "key"))
	require.NoError(t, err)
	edit := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			file := filepath.Join(dir, name)
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			data[len(data)/2] ^= 1
			require.NoError(t, os.WriteFile(file, data, 0o644))
		}
	}
	// signed signs anew what a change left, as one who has the key.
	signed := func(change func(*testing.T, string)) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			change(t, dir)
			require.NoError(t, writeSums(dir, r))
		}
	}
	exchange := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			data, err := os.ReadFile(filepath.Join(dir, strings.Replace(name, "amd64", "arm64", 1)))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
		}
	}
	for name, c := range map[string]struct {
		change  func(*testing.T, string)
		refused string
	}{
		"image":                 {edit(ImageFile("amd64")), ImageFile("amd64") + ": differs from what was signed"},
		"archive":               {edit(ArchiveFile("arm64")), ArchiveFile("arm64") + ": differs from what was signed"},
		"index":                 {edit(IndexFile), IndexFile + ": differs from what was signed"},
		"bill of materials":     {edit(SBOMFile("amd64")), SBOMFile("amd64") + ": differs from what was signed"},
		"manifest":              {edit("manifests/rbac.yaml"), "manifests/rbac.yaml: differs from what was signed"},
		"sums":                  {edit(SumsFile), SumsFile + ": the signature is not of these contents"},
		"no signature":          {func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, SignatureFile))) }, SignatureFile},
		"file taken away":       {func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, NotesFile))) }, NotesFile + ": is missing"},
		"file added":            {func(t *testing.T, dir string) { require.NoError(t, os.WriteFile(filepath.Join(dir, "x"), nil, 0o644)) }, "x: is not part of what was signed"},
		"another key":           {func(t *testing.T, dir string) { require.NoError(t, writeSums(dir, other)) }, "not of an allowed signer"},
		"signed, not proven":    {signed(edit("manifests/rbac.yaml")), ProvenanceFile + ": says SHA-256"},
		"signed, wrong archive": {signed(exchange(ArchiveFile("amd64"))), ProvenanceFile + ": says SHA-256"},
		"signed, no provenance": {signed(func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, ProvenanceFile), []byte("{}"), 0o644))
		}), ProvenanceFile + ": wrong statement type"},
		"no archive, no release": {signed(func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.Mkdir(dir, 0o755))
		}), ProvenanceFile},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "release")
			require.NoError(t, os.CopyFS(dir, os.DirFS(good)))
			c.change(t, dir)
			err := Verify(dir, allowed(t, r), func(string, ...any) {})
			require.ErrorContains(t, err, c.refused)
			assert.NotContains(t, err.Error(), "\n", "one line")
		})
	}
}

// What was built wrong is found although it is signed and proven.
func TestVerifyRefusesWrongBuilds(t *testing.T) {
	for title, c := range map[string]struct {
		change  func(*testing.T, *Release)
		refused string
	}{
		"binary of another architecture": {func(_ *testing.T, r *Release) {
			r.Builds["amd64"], r.Builds["arm64"] = r.Builds["arm64"], r.Builds["amd64"]
		}, "the binary is for linux/arm64"},
		"another version": {func(_ *testing.T, r *Release) { r.Stamp.Version = "v1.37.0+fresh.2" }, "says \"v1.37.0+fresh.1\" in the folder fresh-kcm-v1.37.0+fresh.2/"},
		"index of other images": {func(t *testing.T, r *Release) {
			images := map[string]v1.Image{}
			for arch, file := range map[string]string{"amd64": ImageFile("arm64"), "arm64": ImageFile("amd64")} {
				archive, err := image.Open(filepath.Join(r.Images, file))
				require.NoError(t, err)
				defer archive.Close()
				images[arch], err = archive.Image()
				require.NoError(t, err)
			}
			ref, err := name.NewTag(r.Stamp.Image)
			require.NoError(t, err)
			require.NoError(t, image.WriteIndex(filepath.Join(r.Images, IndexFile), ref, image.Index(images), r.Stamp.Date))
		}, IndexFile + ": has another image for linux/"},
		"image of another binary": {func(t *testing.T, r *Release) {
			data, err := os.ReadFile(filepath.Join(builtDir, "amd64"))
			require.NoError(t, err)
			other := filepath.Join(t.TempDir(), "amd64")
			require.NoError(t, os.WriteFile(other, append(data, 0), 0o755))
			r.Builds["amd64"] = Build{Binary: other, Licences: r.Builds["amd64"].Licences}
		}, "has a kube-controller-manager with SHA-256"},
	} {
		t.Run(title, func(t *testing.T) {
			r := newRelease(t)
			c.change(t, &r)
			dir := t.TempDir()
			require.NoError(t, Write(dir, r))
			assert.ErrorContains(t, Verify(dir, allowed(t, r), func(string, ...any) {}), c.refused)
		})
	}
}

func TestWriteRefusesOldBuilds(t *testing.T) {
	r := newRelease(t)
	r.Stamp.TreeState = "dirty"
	assert.ErrorContains(t, Write(t.TempDir(), r), "kube-controller-manager-linux-amd64.tar is of the commit "+commit+", the release of "+commit+"-dirty: run make image")
	r.Stamp.Commit = strings.Repeat("1", 40)
	assert.ErrorContains(t, Write(t.TempDir(), r), "amd64 is not of the commit 1111111111111111111111111111111111111111: run make image")
}
