// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
)

// inventory is what go says of the packages of some binaries before they are built.
type inventory struct {
	// action identifies, for a module and a package, what is compiled. Modules that have the same version of a package
	// and of all that it imports share it, and go compiles it once.
	action map[modulePackage]string
	// stale actions are not in go's cache.
	stale map[string]bool
}

type modulePackage struct{ dir, pkg string }

// inventoryFormat gives a line for each package, after those that it imports. A main package is linked anew for its version
// alone, which says nothing of what is to be compiled.
const inventoryFormat = `{{.ImportPath}}|{{and .Stale (ne .Name "main")}}|{{with .Module}}{{with .Replace}}{{.Path}}@{{.Version}}{{else}}{{.Path}}@{{.Version}}{{end}}{{end}}|{{join .Imports " "}}`

// takeInventory asks go, which takes seconds: it hashes the sources.
func takeInventory(root string, targets []target) (*inventory, error) {
	inv := newInventory()
	packages := map[string][]string{}
	var dirs []string
	for _, t := range targets {
		if packages[t.dir] == nil {
			dirs = append(dirs, t.dir)
		}
		packages[t.dir] = append(packages[t.dir], t.pkg)
	}
	for _, dir := range dirs {
		cmd := target{dir: dir, arch: targets[0].arch}.command(root, append([]string{"list", "-deps", "-f", inventoryFormat}, packages[dir]...)...)
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list in %s: %w", dir, err)
		}
		if err := inv.add(dir, strings.NewReader(string(out))); err != nil {
			return nil, err
		}
	}
	return inv, nil
}

func newInventory() *inventory {
	return &inventory{action: map[modulePackage]string{}, stale: map[string]bool{}}
}

// add reads what go listed in a module.
func (inv *inventory) add(dir string, listed io.Reader) error {
	lines := bufio.NewScanner(listed)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "|")
		if len(fields) != 4 {
			return fmt.Errorf("go list in %s: unexpected line %q", dir, lines.Text())
		}
		h := sha256.New()
		fmt.Fprintln(h, fields[0], fields[2])
		for imported := range strings.FieldsSeq(fields[3]) {
			fmt.Fprintln(h, inv.action[modulePackage{dir, imported}])
		}
		action := fmt.Sprintf("%x", h.Sum(nil))
		inv.action[modulePackage{dir, fields[0]}] = action
		if fields[1] == "true" {
			inv.stale[action] = true
		}
	}
	return lines.Err()
}
