// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rootfs lists the files of the image, layer by layer, with everything about them fixed, so that the same
// inputs give the same bytes.
package rootfs

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Binary is where the image has kube-controller-manager: where upstream's image has it.
const Binary = "usr/local/bin/kube-controller-manager"

// File is a regular file that root owns.
type File struct {
	Path   string // from the root of the image, without a leading slash
	Mode   os.FileMode
	Data   []byte
	Source string // if set, the contents are read from this file
}

// Layer is a part of the image that changes on its own. A later layer's files come on top of an earlier one's.
type Layer struct {
	Name  string // for the image's history
	Files []File
}

// WriteTar writes the files, sorted, with the folders that they are in, all of one time.
func (l Layer) WriteTar(w io.Writer, date time.Time) error {
	files := slices.Clone(l.Files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	out := tar.NewWriter(w)
	made := map[string]bool{".": true}
	for _, file := range files {
		if err := writeParents(out, path.Dir(file.Path), made, date); err != nil {
			return err
		}
		if err := file.writeTar(out, date); err != nil {
			return fmt.Errorf("%s: %w", file.Path, err)
		}
	}
	return out.Close()
}

func writeParents(out *tar.Writer, dir string, made map[string]bool, date time.Time) error {
	if made[dir] {
		return nil
	}
	if err := writeParents(out, path.Dir(dir), made, date); err != nil {
		return err
	}
	made[dir] = true
	return out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: date, Format: tar.FormatPAX})
}

func (f File) writeTar(out *tar.Writer, date time.Time) error {
	in, size, err := f.open()
	if err != nil {
		return err
	}
	defer in.Close()
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Size: size, Mode: int64(f.Mode.Perm()), ModTime: date, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return err
}

func (f File) open() (io.ReadCloser, int64, error) {
	if f.Source == "" {
		return io.NopCloser(bytes.NewReader(f.Data)), int64(len(f.Data)), nil
	}
	in, err := os.Open(f.Source)
	if err != nil {
		return nil, 0, err
	}
	info, err := in.Stat()
	if err != nil {
		in.Close()
		return nil, 0, err
	}
	return in, info.Size(), nil
}

// ReadDir lists the regular files below dir.
func ReadDir(dir string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if info.Mode().Perm()&0o100 != 0 {
			mode = 0o755
		}
		files = append(files, File{Path: filepath.ToSlash(name), Mode: mode, Source: file})
		return nil
	})
	return files, err
}

// WriteDir writes the files of all layers below dir, for an engine that copies them.
func WriteDir(dir string, layers []Layer) error {
	for _, layer := range layers {
		for _, file := range layer.Files {
			if err := file.writeDir(filepath.Join(dir, filepath.FromSlash(file.Path))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f File) writeDir(to string) error {
	in, _, err := f.open()
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, f.Mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
