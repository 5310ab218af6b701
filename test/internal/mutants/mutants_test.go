// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"bytes"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// A mutant that does not fit its file any more must be adapted with it.
func TestApply(t *testing.T) {
	seen := map[string]Mutant{}
	mutants := slices.Concat(All(), Leaks(), Costs())
	for _, m := range Tests() {
		mutants = append(mutants, m.Mutant)
	}
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			if other, taken := seen[m.Name]; taken && other != m || m.Name == "" || m.Protection == "" {
				t.Errorf("name %q is taken or empty, or %q says nothing", m.Name, m.Protection)
			}
			seen[m.Name] = m
			got, err := m.Apply(root)
			if err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(filepath.Join(root, m.File))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(before, got) {
				t.Error("nothing is changed")
			}
			if _, err := format.Source(got); err != nil {
				t.Error(err)
			}
			if was, is := lines(m.Old), lines(m.New); is > was && !adds(m) {
				t.Errorf("%d lines become %d: a mutant changes what is shipped, and adds nothing that goes wrong by itself", was, is)
			}
		})
	}
}

// adds reports whether a mutant is about what is done too much: it leaks or costs something.
func adds(m Mutant) bool {
	return slices.Contains(Leaks(), m) || slices.Contains(Costs(), m) || strings.HasPrefix(m.Name, "leak-") || strings.HasPrefix(m.Name, "cost-")
}

// lines counts those that are not blank.
func lines(text string) (n int) {
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" {
			n++
		}
	}
	return n
}

func TestApplyRefuses(t *testing.T) {
	for name, old := range map[string]string{"absent": "no such text", "ambiguous": "return"} {
		m := Mutant{Name: name, File: store, Old: old, New: "x"}
		if _, err := m.Apply(root); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
