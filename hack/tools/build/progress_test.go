// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"
)

// listed is what go says of two modules: they share a and b; c imports another b in the second.
var listed = map[string]string{
	"one": "a|true|m@v1|\nb|true|m@v1|a\nc|true|m@v1|b\nmain|true|one@|c",
	"two": "a|true|m@v1|\nb|true|m@v2|a\nc|true|m@v1|b\nd|false|m@v1|a",
}

func inventoryOf(t *testing.T, dirs ...string) *inventory {
	t.Helper()
	inv := newInventory()
	for _, dir := range dirs {
		if err := inv.add(dir, strings.NewReader(listed[dir])); err != nil {
			t.Fatal(err)
		}
	}
	return inv
}

func TestInventoryCountsOnceWhatIsCompiledOnce(t *testing.T) {
	for _, test := range []struct {
		dirs string
		want int
	}{
		{"one", 4},
		{"two", 3},
		{"one two", 6},
	} {
		if inv := inventoryOf(t, strings.Fields(test.dirs)...); len(inv.stale) != test.want {
			t.Errorf("%s: %d stale actions, want %d", test.dirs, len(inv.stale), test.want)
		}
	}
	if err := newInventory().add("one", strings.NewReader("go: warning")); err == nil {
		t.Error("a line that is no package passes")
	}
}

func TestStatus(t *testing.T) {
	begin := time.Unix(0, 0)
	p := &progress{begin: begin, targets: []target{{name: "x", dir: "one"}, {name: "y", dir: "two"}}}
	check := func(want string) {
		t.Helper()
		if have := p.status(begin.Add(65 * time.Second)).String(); have != want {
			t.Errorf("have %q\nwant %q", have, want)
		}
	}
	hear := func(dir string, lines ...string) {
		t.Helper()
		for _, line := range lines {
			if !p.heard(dir, line) {
				t.Errorf("%q passes for a complaint", line)
			}
		}
	}
	hear("one", "go: downloading m v1")
	check("building x (1 of 2), downloading m v1: 0 packages compiled, counting what is left, 1m5s")
	hear("one", "a")
	check("building x (1 of 2): 1 packages compiled, counting what is left, 1m5s")
	// What is compiled before go has been asked is not stale any more, or still was when it looked.
	p.know(inventoryOf(t, "one", "two"))
	check("building x (1 of 2): 1 of 6 packages compiled, 1m5s")
	hear("one", "b", "c", "main")
	p.starts(1)
	check("building y (2 of 2): 4 of 6 packages compiled, 1m5s")
	hear("two", "b", "c")
	check("building y (2 of 2): 6 of 6 packages compiled, 1m5s")
	for _, complaint := range []string{"# m/b", "b.go:1:1: syntax error"} {
		if p.heard("two", complaint) {
			t.Errorf("%q passes for progress", complaint)
		}
	}
}
