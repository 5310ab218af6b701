// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	patchDir   = "staging-patches"
	seriesFile = patchDir + "/series"
	outDir     = "_output/staging"
)

// project is the checkout: its patched modules and the patches on them, in series order.
type project struct {
	root    string
	modules []*module
	series  []*patch
	limits  []limit
}

// limit is how large some patches of the series may be together: those from the limit before to its line.
type limit struct {
	from, to      int
	edited, added int
}

var limitLine = regexp.MustCompile(`^# The patches above(?:, to the limit before)?: at most ([0-9]+) lines edited, ([0-9]+) added\.$`)

// module is one upstream module of which a patched copy is made.
type module struct {
	path    string // k8s.io/client-go
	version string // v0.37.0, from the require line of the root go.mod
	name    string // client-go: the folder below staging-patches/ and _output/staging/
	cached  string // the published module's folder; base fills it
	patches []*patch
	own     *module // of a module on another base: that of the checkout
}

// tree is where the patched copy lives.
func (m *module) tree(root string) string { return filepath.Join(root, outDir, m.name) }

// load reads the root go.mod and the series. The modules are those whose replace line names a
// folder below _output/staging; their base is the version in the require line.
func load(root string) (*project, error) {
	p := &project{root: root}
	if err := p.loadModules(); err != nil {
		return nil, err
	}
	if err := p.loadSeries(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *project) loadModules() error {
	out, _, err := command(p.root, "go", "mod", "edit", "-json")
	if err != nil {
		return fmt.Errorf("go.mod: %w", err)
	}
	var mod struct {
		Require []struct{ Path, Version string }
		Replace []struct{ Old, New struct{ Path string } }
	}
	if err := json.Unmarshal([]byte(out), &mod); err != nil {
		return fmt.Errorf("go.mod: %w", err)
	}
	versions := map[string]string{}
	for _, r := range mod.Require {
		versions[r.Path] = r.Version
	}
	for _, r := range mod.Replace {
		dir, name := path.Split(r.New.Path)
		if strings.TrimPrefix(dir, "./") != outDir+"/" {
			continue
		}
		version := versions[r.Old.Path]
		if version == "" {
			return fmt.Errorf("go.mod: %s is replaced by %s but has no require line that says its base version", r.Old.Path, r.New.Path)
		}
		p.modules = append(p.modules, &module{path: r.Old.Path, version: version, name: name})
	}
	if len(p.modules) == 0 {
		return fmt.Errorf("go.mod: no replace line names a folder below ./%s", outDir)
	}
	return nil
}

func (p *project) loadSeries() error {
	text, err := os.ReadFile(filepath.Join(p.root, seriesFile))
	if err != nil {
		return err
	}
	for n, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if l := limitLine.FindStringSubmatch(line); l != nil {
			from := 0
			if len(p.limits) > 0 {
				from = p.limits[len(p.limits)-1].to
			}
			p.limits = append(p.limits, limit{from, len(p.series), atoi(l[1]), atoi(l[2])})
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		mod := p.module(path.Dir(line))
		if mod == nil {
			return fmt.Errorf("%s:%d: %q: no module %q is replaced in go.mod", seriesFile, n+1, line, path.Dir(line))
		}
		pt, err := loadPatch(p.root, line)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", seriesFile, n+1, err)
		}
		p.series = append(p.series, pt)
		mod.patches = append(mod.patches, pt)
	}
	return nil
}

func (p *project) module(name string) *module {
	for _, m := range p.modules {
		if m.name == name {
			return m
		}
	}
	return nil
}

// packages lists the import paths of the packages that the patches touch, sorted.
func (p *project) packages() []string {
	seen := map[string]bool{}
	for _, m := range p.modules {
		for _, pt := range m.patches {
			for _, f := range append(pt.edits(), pt.adds()...) {
				if strings.HasSuffix(f, ".go") {
					seen[path.Join(m.path, path.Dir(f))] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// files lists the copies of the files that the patches add, sorted.
func (p *project) files() (files []string) {
	for _, m := range p.modules {
		for _, pt := range m.patches {
			for _, f := range pt.adds() {
				files = append(files, path.Join(outDir, m.name, f))
			}
		}
	}
	slices.Sort(files)
	return files
}

// base downloads the published module if need be and returns its folder in the module cache.
func (m *module) base() (string, error) {
	if m.cached != "" {
		return m.cached, nil
	}
	// Run outside any module, so that the replace lines, whose folders may not exist yet, do not matter.
	out, _, err := command(os.TempDir(), "go", "mod", "download", "-json", m.path+"@"+m.version)
	var info struct{ Dir, Error string }
	if jsonErr := json.Unmarshal([]byte(out), &info); jsonErr != nil && err == nil {
		err = jsonErr
	}
	if info.Error != "" {
		err = errors.New(info.Error)
	}
	if err != nil {
		return "", fmt.Errorf("download %s@%s: %w", m.path, m.version, err)
	}
	m.cached = info.Dir
	return m.cached, nil
}

// command runs a program and returns what it said; a failure is a *commandError.
func command(dir, name string, args ...string) (stdout, stderr string, err error) {
	return commandIn(dir, "", name, args...)
}

// commandIn is command with an input.
func commandIn(dir, stdin, name string, args ...string) (stdout, stderr string, err error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	// GIT_CEILING_DIRECTORIES keeps git from taking the checkout around an ignored folder for its own.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GOWORK=off", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return "", "", fmt.Errorf("%s is not installed or not in PATH", name)
	}
	if err != nil {
		err = &commandError{call: name + " " + args[0], stderr: strings.TrimSpace(errOut.String()), err: err}
	}
	return out.String(), errOut.String(), err
}

// commandError keeps what a program said before it failed.
type commandError struct {
	call, stderr string
	err          error
}

func (e *commandError) Error() string { return fmt.Sprintf("%s: %v: %s", e.call, e.err, e.stderr) }
func (e *commandError) Unwrap() error { return e.err }
