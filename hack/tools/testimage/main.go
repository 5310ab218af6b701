// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command testimage puts one static binary into an image made from scratch, as the tests on a real kubelet need it of
// what is not ours to release: stock kube-controller-manager and the pause of a pod's sandbox.
//
//	testimage -name registry.k8s.io/kube-controller-manager:v1.37.0 -binary FILE -path /usr/local/bin/kube-controller-manager -out FILE.tar
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	image := flag.String("name", "", "name and tag of the image")
	binary := flag.String("binary", "", "the static binary")
	path := flag.String("path", "", "where the image has it; it is the entrypoint too")
	out := flag.String("out", "", "the file to write, as docker save writes it")
	flag.Parse()
	if *image == "" || *binary == "" || !strings.HasPrefix(*path, "/") || *out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(*image, *binary, *path, *out); err != nil {
		fmt.Fprintln(os.Stderr, "testimage:", err)
		os.Exit(1)
	}
}

func write(image, binary, path, out string) error {
	tag, err := name.NewTag(image, name.StrictValidation)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return archive(path, data) })
	if err != nil {
		return fmt.Errorf("%s: %w", binary, err)
	}
	made, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	config, err := made.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{path}, Env: []string{"PATH=/usr/local/bin"}}
	if made, err = mutate.ConfigFile(made, config); err != nil {
		return err
	}
	return tarball.WriteToFile(out, tag, made)
}

// archive is a layer with one executable.
func archive(path string, data []byte) (io.ReadCloser, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	header := &tar.Header{Name: strings.TrimPrefix(path, "/"), Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg}
	if err := w.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	return io.NopCloser(&buffer), w.Close()
}
