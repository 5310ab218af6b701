// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stamp reads what a build of this checkout says of itself: its version, its base and its commit.
package stamp

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	versionFile = "build/VERSION"
	imageFile   = "build/IMAGE"
)

var (
	versionForm = regexp.MustCompile(`^(v([0-9]+)\.([0-9]+)\.[0-9]+)\+fresh\.[1-9][0-9]*$`)
	requireLine = regexp.MustCompile(`(?m)^(?:require\s+|\s+)k8s\.io/kubernetes\s+(v\S+)`)
)

// Stamp is what --version, /version and kubernetes_build_info say of a build.
type Stamp struct {
	Version   string // v1.37.0+fresh.1
	Base      string // v1.37.0, as go.mod requires it
	Image     string // of the container: registry and repository from build/IMAGE, the version as its tag
	Commit    string
	TreeState string    // clean or dirty, as git says
	Date      time.Time // SOURCE_DATE_EPOCH, or else of the commit: the same commit gives the same bytes
}

// Read reads build/VERSION and refuses one that is not of the base in go.mod.
func Read(root string) (Stamp, error) {
	text, err := os.ReadFile(filepath.Join(root, versionFile))
	if err != nil {
		return Stamp{}, err
	}
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return Stamp{}, err
	}
	s := Stamp{Version: strings.TrimSpace(string(text))}
	if s.Base, err = baseOf(s.Version, string(goMod)); err != nil {
		return Stamp{}, err
	}
	image, err := os.ReadFile(filepath.Join(root, imageFile))
	if err != nil {
		return Stamp{}, err
	}
	s.Image = strings.TrimSpace(string(image)) + ":" + strings.ReplaceAll(s.Version, "+", "_")
	if s.Commit, err = git(root, "rev-parse", "HEAD"); err != nil {
		return Stamp{}, err
	}
	status, err := git(root, "status", "--porcelain")
	if err != nil {
		return Stamp{}, err
	}
	s.TreeState = "clean"
	if status != "" {
		s.TreeState = "dirty"
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		if seconds, err = git(root, "log", "-1", "--format=%ct"); err != nil {
			return Stamp{}, err
		}
	}
	epoch, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return Stamp{}, fmt.Errorf("SOURCE_DATE_EPOCH %q is not a number of seconds", seconds)
	}
	s.Date = time.Unix(epoch, 0).UTC()
	return s, nil
}

// baseOf returns the upstream version that go.mod requires, if version is a build of it.
func baseOf(version, goMod string) (string, error) {
	form := versionForm.FindStringSubmatch(version)
	if form == nil {
		return "", fmt.Errorf("%s says %q: want v<base>+fresh.<N>, such as v1.37.0+fresh.1", versionFile, version)
	}
	require := requireLine.FindStringSubmatch(goMod)
	if require == nil {
		return "", fmt.Errorf("go.mod does not require k8s.io/kubernetes")
	}
	if form[1] != require[1] {
		return "", fmt.Errorf("%s says %s but go.mod requires k8s.io/kubernetes %s: make the two agree", versionFile, version, require[1])
	}
	return require[1], nil
}

// Revision is the commit, marked if the checkout differs from it.
func (s Stamp) Revision() string {
	if s.TreeState != "clean" {
		return s.Commit + "-" + s.TreeState
	}
	return s.Commit
}

// Fresh are the linker flags of the binaries with our code.
func (s Stamp) Fresh() string {
	return s.ldflags(s.Version, s.Commit, s.TreeState, s.Date.Format(time.RFC3339))
}

// Stock are the linker flags of upstream's own binaries. The module proxy does not say which commit a module was made
// of, so they carry none, and no date.
func (s Stamp) Stock() string { return s.ldflags(s.Base, "", "archive", "1970-01-01T00:00:00Z") }

func (s Stamp) ldflags(version, commit, treeState, date string) string {
	form := strings.SplitN(strings.TrimPrefix(s.Base, "v"), ".", 3)
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range [][2]string{{"gitMajor", form[0]}, {"gitMinor", form[1]}, {"gitVersion", version}, {"gitCommit", commit}, {"gitTreeState", treeState}, {"buildDate", date}} {
			flags = append(flags, "-X", pkg+"."+v[0]+"="+v[1])
		}
	}
	return strings.Join(flags, " ")
}

func git(root string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", root}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w (the build stamps the commit and needs a git checkout)", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
