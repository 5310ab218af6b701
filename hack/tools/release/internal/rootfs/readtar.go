// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rootfs

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path"
)

// ReadTar unpacks the regular files of an archive below dir, whatever their paths say.
func ReadTar(in io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for files := tar.NewReader(in); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := root.MkdirAll(path.Dir(header.Name), 0o755); err != nil {
			return err
		}
		out, err := root.OpenFile(header.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, os.FileMode(header.Mode).Perm())
		if err != nil {
			return err
		}
		if _, err := io.Copy(out, files); err != nil {
			out.Close()
			return err
		}
		if err := out.Close(); err != nil {
			return err
		}
	}
}
