// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rootfs

import (
	"archive/zip"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// Certificates is where Go looks first for the certificate authorities that it trusts.
const Certificates = "etc/ssl/certs/ca-certificates.crt"

// User is the user in /etc/passwd that needs no rights, as its number and as the number of its group.
const User = "65532"

const (
	passwd = `root:x:0:0:root:/root:/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin
nonroot:x:65532:65532:nonroot:/nonexistent:/sbin/nologin
`
	group = `root:x:0:
nobody:x:65534:
nonroot:x:65532:
`
)

// Layers are the image's files: what every Go program needs, the licences, and the binary. goroot is the Go
// distribution that time zones come from; licences are paths below /licenses.
func Layers(goroot, binary string, licences map[string][]byte) ([]Layer, error) {
	base, err := baseLayer(goroot)
	if err != nil {
		return nil, err
	}
	texts := Layer{Name: "licences of everything in the image"}
	for name, text := range licences {
		texts.Files = append(texts.Files, File{Path: "licenses/" + name, Mode: 0o644, Data: text})
	}
	return []Layer{base, texts, {
		Name:  "kube-controller-manager",
		Files: []File{{Path: Binary, Mode: 0o755, Source: binary}},
	}}, nil
}

func baseLayer(goroot string) (Layer, error) {
	zones, err := timeZones(filepath.Join(goroot, "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return Layer{}, fmt.Errorf("time zones of the Go distribution: %w", err)
	}
	return Layer{
		Name: "users, certificate authorities, time zones",
		Files: append(zones,
			File{Path: "etc/passwd", Mode: 0o644, Data: []byte(passwd)},
			File{Path: "etc/group", Mode: 0o644, Data: []byte(group)},
			File{Path: Certificates, Mode: 0o644, Data: certificates()}),
	}, nil
}

// certificates are Mozilla's certificate authorities, as PEM. Left out are those that Mozilla trusts under a
// condition, because a file of certificates cannot say one.
func certificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			// Writing to a buffer does not fail.
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return out.Bytes()
}

// timeZones unpacks the time zones where Go and everything else looks for them.
func timeZones(file string) ([]File, error) {
	in, err := zip.OpenReader(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var files []File
	for _, entry := range in.File {
		if entry.FileInfo().IsDir() {
			continue
		}
		if !filepath.IsLocal(entry.Name) {
			return nil, fmt.Errorf("%s has the path %q", file, entry.Name)
		}
		zone, err := entry.Open()
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(zone)
		if err := errors.Join(err, zone.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", entry.Name, err)
		}
		files = append(files, File{Path: "usr/share/zoneinfo/" + entry.Name, Mode: 0o644, Data: data})
	}
	return files, nil
}
