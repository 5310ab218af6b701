// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// gatesLine is what hack/test-upstream-unit.sh has each run of a package's tests begin with: it is followed by true or false.
const gatesLine = "gates "

// unitRunner keeps what go test -json says of upstream's unit tests.
type unitRunner struct {
	records, code string
	// arm is that of all tests, unless empty: then the tests say it.
	arm string
	out io.Writer
}

// unitPackage is what has become of a package's tests so far.
type unitPackage struct {
	arm     string
	results map[string]*result
	said    strings.Builder
}

// run reads until in ends. It fails if a test did, or a package.
func (u unitRunner) run(in io.Reader) error {
	packages := map[string]*unitPackage{}
	var failed []string
	lines := bufio.NewReader(in)
	for {
		line, readErr := lines.ReadBytes('\n')
		var e struct {
			event
			Package, ImportPath string
		}
		if len(line) > 0 {
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(u.out, "%s", line) // go itself has something to say
			} else if name := e.Package; name == "" {
				fmt.Fprint(u.out, e.Output)
			} else {
				p := packages[name]
				if p == nil {
					p = &unitPackage{arm: u.arm, results: map[string]*result{}}
					packages[name] = p
				}
				p.add(e.event)
				if e.Test == "" && ends[e.Action] {
					fmt.Fprintf(u.out, "%-4s %s %s (%.1f s)\n", e.Action, name, p, e.Elapsed)
				}
				if e.Test == "" && e.Action == "fail" {
					fmt.Fprint(u.out, p.said.String())
					failed = append(failed, name)
				}
			}
		}
		if errors.Is(readErr, io.EOF) {
			break
		}
		if readErr != nil {
			return readErr
		}
	}
	if len(packages) == 0 {
		return errors.New("no package was tested")
	}
	if err := keep(u.records, func(k *records) {
		for name, p := range packages {
			for arm, r := range p.results {
				put(k.Units, name, arm, r.record(meta{Code: u.code, Began: time.Now().UTC().Truncate(time.Second)}, nil))
			}
		}
	}); err != nil {
		return err
	}
	if len(failed) > 0 {
		slices.Sort(failed)
		return fmt.Errorf("failed: %s", strings.Join(slices.Compact(failed), ", "))
	}
	return nil
}

func (p *unitPackage) add(e event) {
	p.said.WriteString(e.Output)
	if on, ok := strings.CutPrefix(strings.TrimSpace(e.Output), gatesLine); ok && e.Test == "" {
		p.arm = map[string]string{"true": "on", "false": "off"}[on]
	}
	if e.Test == "" || e.Action != "run" && !ends[e.Action] || p.arm == "" {
		return
	}
	r := p.results[p.arm]
	if r == nil {
		r = &result{State: map[string]string{}, Why: map[string]string{}}
		p.results[p.arm] = r
	}
	r.State[e.Test] = e.Action
}

func (p *unitPackage) String() string {
	var out []string
	for _, arm := range slices.Sorted(maps.Keys(p.results)) {
		run := p.results[arm].record(meta{}, nil)
		out = append(out, fmt.Sprintf("%s: %d of %d passed", arm, run.Passed, run.total()))
	}
	return strings.Join(out, ", ")
}

const unitHead = `
## Unit tests

The packages that a patch touches, unmodified but for three tests that ` + "`hack/test-upstream-unit.sh`" + ` adds to or mends, by ` + "`make upstream-unit`" + `, which is part of ` + "`make test`" + ` and fails with the first test that fails. What replaces the stores
is said in [development](development.md#upstreams-tests-with-the-gates-on-and-off). Packages of client-go know no gates of this project: they run with AtomicFIFO on, and off.

`

// units writes the part about unit tests.
func units(w *strings.Builder, packages map[string]map[string]*packageRun) {
	w.WriteString(unitHead)
	if len(packages) == 0 {
		fmt.Fprintln(w, "Not run yet.")
		return
	}
	fmt.Fprintf(w, "| Package | gates off | gates on |\n| --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		fmt.Fprintf(w, "| %s | %s | %s |\n", name, cell(packages[name], "off"), cell(packages[name], "on"))
	}
}
