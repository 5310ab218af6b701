// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command age says which rows of docs/protection.md were made before what they rest on was changed, each with the command that makes it again, and fails if there is
// one. What else has changed of the product it does not look at.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/fresh-kcm/fresh-kcm/test/internal/mutants"
)

const page = "docs/protection.md"

func main() {
	old, all, err := find()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, line := range old {
		fmt.Println(line)
	}
	fmt.Printf("%d of %d rows of %s are older than what they rest on\n", len(old), all, page)
	if len(old) > 0 {
		os.Exit(1)
	}
}

// row is one of the page.
type row interface {
	RestsOn(root string) (string, error)
}

func find() (old []string, all int, err error) {
	p, err := mutants.ReadPage(page)
	if err != nil {
		return nil, 0, err
	}
	judge := func(r row, rests, what, command string) error {
		all++
		now, err := r.RestsOn(".")
		if err == nil && now != rests {
			old = append(old, fmt.Sprintf("%s\n  %s", what, command))
		}
		return err
	}
	for _, r := range p.Scenarios() {
		command := fmt.Sprintf("make e2e-protection FILTER='scenario:%d && !/^mutant:/'", r.Number)
		if name, ok := strings.CutPrefix(r.By, "mutant "); ok {
			name = strings.Trim(name, "`")
			command = fmt.Sprintf("make e2e-protection FILTER='scenario:%d && mutant:%s' MUTANTS=%s", r.Number, name, name)
		}
		if err := judge(r, r.Rests, fmt.Sprintf("%s: scenario %d, %s, without %s", r.Commit, r.Number, r.Title, r.By), command); err != nil {
			return nil, 0, err
		}
	}
	for _, r := range p.Tests() {
		if err := judge(r, r.Rests, r.Commit+": test of "+r.Mutant, "make protection MUTANTS="+r.Mutant); err != nil {
			return nil, 0, err
		}
	}
	return old, all, nil
}
