// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// rehearsal says how the series fares on another base. Nothing of the checkout is changed.
type rehearsal struct {
	base    string // v1.36.3
	patches []*patchOutcome
}

// patchOutcome is what one patch met on the base.
type patchOutcome struct {
	patch *patch
	on    string // k8s.io/client-go v0.36.3
	hunks []*hunkOutcome
	files []fileOutcome
}

// fileOutcome is what an added file met on the base: noReason if it can be laid there.
type fileOutcome struct {
	name   string
	reason reason
}

// clashes counts the added files that the base has no place for.
func (o *patchOutcome) clashes() (n int) {
	for _, f := range o.files {
		if f.reason != noReason {
			n++
		}
	}
	return n
}

// fit says how a hunk applies, from best to worst.
type fit int

const (
	applies   fit = iota // at the line that the patch says
	offset               // at another line, all context matching
	fuzz                 // with less context than the patch has
	conflicts            // not at all
)

func (f fit) String() string {
	return [...]string{"applies", "applies with offset", "applies with fuzz", "conflicts"}[f]
}

// hunkOutcome is what one hunk met on the base.
type hunkOutcome struct {
	hunk
	number, of int // in its file, from 1
	fit        fit
	note       string // git's words on offset or fuzz
	reason     reason // of a conflict
	missed     []string
	// follows says that an earlier patch conflicts in the same file, so this one met other code than it builds on.
	follows string
}

// worst is how the patch as a whole fares.
func (o *patchOutcome) worst() fit {
	worst := applies
	if o.clashes() > 0 {
		return conflicts
	}
	for _, h := range o.hunks {
		worst = max(worst, h.fit)
	}
	return worst
}

// at returns the project on another base: modules of the base's version, or of the v0 version that
// Kubernetes' staging modules have with it.
func (p *project) at(base string) (*project, error) {
	own := ""
	for _, m := range p.modules {
		if strings.HasPrefix(m.version, "v1.") {
			own = m.version
		}
	}
	if own == "" || !strings.HasPrefix(base, "v1.") {
		return nil, fmt.Errorf("base %q: want a version of k8s.io/kubernetes, such as v1.36.3", base)
	}
	other := &project{root: p.root, series: p.series}
	for _, m := range p.modules {
		version := base
		if m.version == "v0."+strings.TrimPrefix(own, "v1.") {
			version = "v0." + strings.TrimPrefix(base, "v1.")
		} else if m.version != own {
			return nil, fmt.Errorf("%s %s is neither of %s nor of its staging modules: nothing says which version belongs to %s", m.path, m.version, own, base)
		}
		other.modules = append(other.modules, &module{path: m.path, version: version, name: m.name, patches: m.patches, own: m})
	}
	return other, nil
}

// rehearse applies the series to the project's base, each hunk as far as it goes. What follows a conflict meets
// the files as the conflict left them: with the hunks that apply.
func (p *project) rehearse(base string) (*rehearsal, error) {
	work, err := os.MkdirTemp("", "rehearsal-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	r := &rehearsal{base: base}
	broken := map[string]string{} // file of a module: the first patch that conflicts in it
	for _, pt := range p.series {
		m := p.module(filepath.Dir(pt.name))
		from, err := m.base()
		if err != nil {
			return nil, err
		}
		tree := filepath.Join(work, m.name)
		o := &patchOutcome{patch: pt, on: m.path + " " + m.version}
		for _, f := range pt.adds() {
			why, err := m.meets(f)
			if err != nil {
				return nil, err
			}
			o.files = append(o.files, fileOutcome{f, why})
		}
		for _, f := range splitDiff(pt.diff) {
			file := filepath.Join(tree, f.name)
			if _, err := os.Stat(file); err != nil {
				if err := copyFile(filepath.Join(from, f.name), file); err != nil {
					return nil, err
				}
			}
			hunks, err := rehearseFile(work, tree, f)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", pt.name, f.name, err)
			}
			for _, h := range hunks {
				h.follows = broken[file]
			}
			for _, h := range hunks {
				if h.fit == conflicts && broken[file] == "" {
					broken[file] = pt.name
				}
			}
			o.hunks = append(o.hunks, hunks...)
		}
		r.patches = append(r.patches, o)
	}
	return r, nil
}

// meets says why an added file cannot be laid into the base, or noReason.
func (m *module) meets(file string) (reason, error) {
	base, err := m.base()
	if err != nil {
		return noReason, err
	}
	own, err := m.own.base()
	if err != nil {
		return noReason, err
	}
	folder := filepath.Dir(file)
	switch {
	case exists(filepath.Join(base, file)):
		return fileThere, nil
	case exists(filepath.Join(own, folder)) && !exists(filepath.Join(base, folder)):
		return noFolder, nil
	}
	return noReason, nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

var (
	hunkMoved    = regexp.MustCompile(`(?m)^Hunk #([0-9]+) succeeded at [0-9]+ \((offset .*)\)\.$`)
	hunkRejected = regexp.MustCompile(`(?m)^Rejected hunk #([0-9]+)\.$`)
)

// rehearseFile applies a file's hunks to tree, and says of each how. Those that do not apply are tried once more,
// alone and with less context.
func rehearseFile(work, tree string, f fileDiff) ([]*hunkOutcome, error) {
	out := make([]*hunkOutcome, len(f.hunks))
	for i, h := range f.hunks {
		out[i] = &hunkOutcome{hunk: h, number: i + 1, of: len(f.hunks)}
	}
	target := filepath.Join(tree, f.name)
	before, err := os.ReadFile(target)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return nil, err
	}
	if before == nil {
		for _, o := range out {
			o.fit, o.reason = conflicts, noFile
		}
		return out, nil
	}
	said, ok, err := gitApply(work, tree, f.header+joinHunks(f.hunks), "--reject")
	if err != nil {
		return nil, err
	}
	for _, match := range hunkMoved.FindAllStringSubmatch(said, -1) {
		o := out[atoi(match[1])-1]
		o.fit, o.note = offset, match[2]
	}
	if ok {
		return out, nil
	}
	rejected := hunkRejected.FindAllStringSubmatch(said, -1)
	if len(rejected) == 0 {
		return nil, fmt.Errorf("git apply: %s", said)
	}
	for _, match := range rejected {
		o := out[atoi(match[1])-1]
		o.fit = conflicts
		for _, context := range []string{"2", "1"} {
			if _, ok, err := gitApply(work, tree, f.header+o.text, "-C"+context); err != nil {
				return nil, err
			} else if ok {
				o.fit, o.note = fuzz, context+" lines of context in place of 3"
				break
			}
		}
		if o.fit == conflicts {
			o.reason, o.missed = explain(o.hunk, string(before))
		}
	}
	return out, errors.Join(removeIfThere(target+".rej"), removeIfThere(target+".orig"))
}

func removeIfThere(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// gitApply applies a diff to tree and returns what git said. That it does not apply is no error.
func gitApply(work, tree, diff string, args ...string) (said string, ok bool, err error) {
	file := filepath.Join(work, "next.patch")
	if err := os.WriteFile(file, []byte(diff), 0o644); err != nil {
		return "", false, err
	}
	_, said, err = command(tree, "git", append(append(strings.Fields(gitApplyCall), args...), file)...)
	var failed *commandError
	if errors.As(err, &failed) {
		return failed.stderr, false, nil
	}
	return said, err == nil, err
}
