// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
)

// count is what a binary costs to build from nothing, after the binaries before it.
type count struct {
	packages int // that it is linked from
	compiled int // of these, those that no binary before it has compiled
	again    int // of these, those that one before it has compiled of other versions of themselves or of what they import
}

// counter counts binary after binary.
type counter struct {
	actions  map[string]bool
	packages map[string]bool
}

func newCounter() *counter { return &counter{actions: map[string]bool{}, packages: map[string]bool{}} }

func (c *counter) add(inv *inventory) count {
	var sum count
	for p, action := range inv.action {
		sum.packages++
		if c.actions[action] {
			continue
		}
		sum.compiled++
		if c.packages[p.pkg] {
			sum.again++
		}
		c.actions[action] = true
	}
	for p := range inv.action {
		c.packages[p.pkg] = true
	}
	return sum
}

// countPackages prints what each binary costs to build from nothing, in packages, by what go list says.
func countPackages(out io.Writer, root string, targets []target) error {
	const row = "%-32v %9v %9v %6v\n"
	fmt.Fprintf(out, row, "binary", "packages", "compiled", "again")
	counts, all := newCounter(), count{}
	for i, t := range targets {
		inv, err := takeInventory(root, targets[i:i+1])
		if err != nil {
			return err
		}
		c := counts.add(inv)
		all.compiled += c.compiled
		all.again += c.again
		fmt.Fprintf(out, row, t.path(), c.packages, c.compiled, c.again)
	}
	fmt.Fprintf(out, row, "all", "", all.compiled, all.again)
	return nil
}
