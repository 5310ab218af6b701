// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package licenses finds the licence texts of everything that is linked into a binary.
package licenses

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// GoModule is the name under which the licences of Go's standard library are found.
const GoModule = "go"

// isText says whether a file by this name is one that a licence may ask to be passed on.
var isText = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|notice|patents)([-_.][^/]*)?$`)

// Texts are licence texts by module and by their path in the module.
type Texts map[string]map[string][]byte

// Collect reads the licence texts of the module that has a main package in the folder pkg below root, of all modules
// with a package that is linked into it on Linux on arch, and of Go itself. A text counts if it is in the folder of
// such a package, or above it. A module without any text is an error.
func Collect(root, pkg, arch, goroot string) (Texts, error) {
	packages, err := list(root, pkg, arch)
	if err != nil {
		return nil, err
	}
	texts := Texts{GoModule: {}}
	seen := map[string]bool{}
	for _, p := range packages {
		if p.Module == nil {
			continue
		}
		module := p.Module.Path
		if texts[module] == nil {
			texts[module] = map[string][]byte{}
		}
		for dir := p.Dir; strings.HasPrefix(dir, p.Module.dir()) && !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			if err := read(dir, p.Module.dir(), texts[module]); err != nil {
				return nil, err
			}
		}
	}
	if err := read(goroot, goroot, texts[GoModule]); err != nil {
		return nil, err
	}
	var without []string
	for module, found := range texts {
		if len(found) == 0 {
			without = append(without, module)
		}
	}
	if len(without) > 0 {
		slices.Sort(without)
		return nil, fmt.Errorf("no licence text is in %s", strings.Join(without, ", "))
	}
	return texts, nil
}

// Files are all texts by path: the module's name, then the path in the module.
func (t Texts) Files() map[string][]byte {
	files := map[string][]byte{}
	for module, texts := range t {
		for name, text := range texts {
			files[path.Join(module, name)] = text
		}
	}
	return files
}

type goPackage struct {
	Dir    string
	Module *goModule
}

type goModule struct {
	Path    string
	Dir     string
	Replace *goModule
}

func (m goModule) dir() string {
	if m.Replace != nil {
		return m.Replace.Dir
	}
	return m.Dir
}

func list(root, pkg, arch string) ([]goPackage, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=Dir,Module", pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS=linux", "GOARCH="+arch)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w\n%s", pkg, err, strings.TrimSpace(stderr.String()))
	}
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages, nil
		case err != nil:
			return nil, fmt.Errorf("go list %s: %w", pkg, err)
		}
		packages = append(packages, p)
	}
}

func read(dir, module string, into map[string][]byte) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !isText.MatchString(entry.Name()) || strings.HasSuffix(entry.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		name, err := filepath.Rel(module, filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		into[filepath.ToSlash(name)] = text
	}
	return nil
}
