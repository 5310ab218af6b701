// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

const (
	kubeControllerManager = "kube-controller-manager"
	kubeAPIServer         = "kube-apiserver"
	kubeScheduler         = "kube-scheduler"
	etcdBinary            = "etcd"
	kwokBinary            = "kwok"

	binDirEnv  = "FRESH_KCM_BIN_DIR"
	modulePath = "github.com/fresh-kcm/fresh-kcm"
)

// FindBinDir returns the directory that Options.BinDir stands for when it is empty.
func FindBinDir() (string, error) {
	if dir := os.Getenv(binDirEnv); dir != "" {
		return filepath.Abs(dir)
	}
	if exe, err := os.Executable(); err == nil {
		if _, err := os.Stat(filepath.Join(filepath.Dir(exe), etcdBinary)); err == nil {
			return filepath.Dir(exe), nil
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the binaries: %w", err)
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(mod, []byte("module "+modulePath+"\n")) {
			return filepath.Join(dir, "_output", "bin"), nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("finding the binaries: not inside a checkout of %s; set %s", modulePath, binDirEnv)
		}
		dir = parent
	}
}

// CheckBinaries returns an error that names every binary missing for a cluster with the given arms, and
// the make target that builds it.
func CheckBinaries(binDir string, arms ...Arm) error {
	var missing []string
	for _, name := range []string{etcdBinary, kubeAPIServer, kubeScheduler, kwokBinary} {
		if err := checkBinary(filepath.Join(binDir, name)); err != nil {
			missing = append(missing, err.Error())
		}
	}
	for _, arm := range arms {
		if !arm.valid() {
			return fmt.Errorf("unknown arm %q", arm)
		}
		if err := checkBinary(arm.Binary(binDir)); err != nil {
			missing = append(missing, err.Error())
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s", strings.Join(missing, "; "))
	}
	return nil
}

func checkBinary(path string) error {
	if _, err := exec.LookPath(path); err == nil {
		return nil
	}
	return fmt.Errorf("no binary %s: run \"make build\"", path)
}

// versions holds the answers of binaries, which do not change while a cluster runs and take some
// hundred milliseconds each.
var versions sync.Map

// versionPattern finds the version among the names and platforms that binaries put around it.
var versionPattern = regexp.MustCompile(`v?\d+\.\d+\.\d+\S*`)

// binaryVersion asks a binary for its version.
func binaryVersion(ctx context.Context, path string) (string, error) {
	if v, ok := versions.Load(path); ok {
		return v.(string), nil
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", path, err)
	}
	v := versionPattern.FindString(string(out))
	if v == "" {
		return "", fmt.Errorf("asking %s for its version: no version in %.100q", path, out)
	}
	versions.Store(path, v)
	return v, nil
}
