// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ten is a hunk's place in one.txt: patch 0001 replaces line 9 there.
var ten = numbered(9, 9)

// rehearsed makes the two patches of withTwoPatches, changes the published files by edit, and rehearses on them.
func rehearsed(t *testing.T, edit func(c *checkout)) *rehearsal {
	t.Helper()
	return withTwoPatches(t).rehearse(edit)
}

// rehearse changes the published files by edit, and rehearses on them.
func (c *checkout) rehearse(edit func(c *checkout)) *rehearsal {
	c.t.Helper()
	own := c.t.TempDir()
	c.ok(os.CopyFS(own, os.DirFS(c.base)))
	edit(c)
	other, err := c.project().at("v1.3.0")
	c.ok(err)
	other.modules[0].cached, other.modules[0].own.cached = c.base, own
	before := c.read(c.root, patchDir+"/lib/0001-first.patch") + c.read(c.tree(), "one.txt")
	r, err := other.rehearse("v1.3.0")
	c.ok(err)
	if after := c.read(c.root, patchDir+"/lib/0001-first.patch") + c.read(c.tree(), "one.txt"); after != before {
		c.t.Error("a rehearsal changes the checkout")
	}
	return r
}

// in replaces text in the published file.
func in(name, old, new string) func(c *checkout) {
	return func(c *checkout) {
		text := c.read(c.base, name)
		if !strings.Contains(text, old) {
			c.t.Fatalf("%s has no %q", name, old)
		}
		c.write(c.base, name, strings.Replace(text, old, new, 1))
	}
}

func TestRehearsalTellsConflictsFromWhatApplies(t *testing.T) {
	for name, tc := range map[string]struct {
		edit   func(c *checkout)
		want   []fit // of the hunks of 0001: line 9, line 20, sub/two.txt
		reason reason
		missed []string
	}{
		"the same base":            {edit: func(*checkout) {}, want: []fit{applies, applies, applies}},
		"lines before":             {edit: in("one.txt", "line i\n", "new\nline i\n"), want: []fit{offset, offset, applies}},
		"context farther away":     {edit: in("one.txt", numbered(6, 6), "line six\n"), want: []fit{fuzz, applies, applies}},
		"context next to it":       {edit: in("one.txt", numbered(8, 8), "line eight\n"), want: []fit{conflicts, applies, applies}, reason: otherContext, missed: []string{"-line iiiiiiii", "+line eight"}},
		"the line that it changes": {edit: in("one.txt", ten, "line changed upstream\n"), want: []fit{conflicts, applies, applies}, reason: otherCode, missed: []string{"-line iiiiiiiii", "+line changed upstream"}},
		"other code": {edit: in("one.txt", numbered(6, 12), "nothing\nof it\n"), want: []fit{conflicts, offset, applies}, reason: noCode,
			missed: strings.Split("-"+strings.TrimSuffix(strings.ReplaceAll(numbered(6, 12), "\n", "\n-"), "\n-"), "\n")},
		"no file": {edit: func(c *checkout) { c.ok(os.Remove(filepath.Join(c.base, "sub/two.txt"))) }, want: []fit{applies, applies, conflicts}, reason: noFile},
	} {
		t.Run(name, func(t *testing.T) {
			first := rehearsed(t, tc.edit).patches[0]
			var got []fit
			for _, h := range first.hunks {
				got = append(got, h.fit)
				if h.fit == conflicts && (h.reason != tc.reason || !slices.Equal(h.missed, tc.missed)) {
					t.Errorf("hunk %d of %s: reason %d, missed %q; want %d, %q", h.number, h.file, h.reason, h.missed, tc.reason, tc.missed)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("hunks: %v, want %v", got, tc.want)
			}
			if want := slices.Max(tc.want); first.worst() != want {
				t.Errorf("the patch %s, want: %s", first.worst(), want)
			}
		})
	}
}

func TestAnAdditionToAFunctionThatReadsDifferently(t *testing.T) {
	add := hunk{section: "func f() {", text: "@@ -3,4 +3,5 @@ func f() {\n \told := first()\n \tsecond(old)\n+\tours()\n \tthird(old)\n \tfourth(old)\n"}
	change := add
	change.text = strings.Replace(change.text, " \tsecond", "-\tsecond", 1)
	const other = "package x\n\nfunc f() {\n\tentirelyNew()\n}\n"
	for name, tc := range map[string]struct {
		hunk hunk
		text string
		want reason
	}{
		"adds":                 {add, other, otherPlace},
		"replaces":             {change, other, noCode},
		"adds to what is gone": {add, "package x\n", noCode},
	} {
		if got, _ := explain(tc.hunk, tc.text); got != tc.want {
			t.Errorf("%s: reason %d, want %d", name, got, tc.want)
		}
	}
}

func TestAConflictIsFollowedByThatOfTheNextPatch(t *testing.T) {
	r := rehearsed(t, func(c *checkout) {
		// By hand, as a rebase may leave it: 0002 changes what 0001 made of line 9.
		c.append("0002-second", "diff --git a/one.txt b/one.txt\n--- a/one.txt\n+++ b/one.txt\n@@ -8,3 +8,3 @@\n "+
			strings.TrimPrefix(numbered(8, 8), " ")+"-line nine\n+line 9\n "+numbered(10, 10))
		in("one.txt", ten, "line changed upstream\n")(c)
	})
	second := r.patches[1]
	if second.worst() != conflicts {
		t.Fatalf("0002 %s, want a conflict", second.worst())
	}
	for _, h := range second.hunks {
		if want := map[string]string{"one.txt": "lib/0001-first.patch"}[h.file]; h.follows != want {
			t.Errorf("%s follows %q, want %q", h.file, h.follows, want)
		}
	}
	page := r.markdown()
	for _, want := range []string{
		"0 of 2 patches apply; of their 4 hunks 2 conflict, and of the 1 files that they add 0.", "`make rebase-rehearsal BASE=v1.3.0`",
		"| `lib/0001-first` | 2 | 0 | 0 | 1 | 0 | 0 | conflicts |",
		"Hunk 1 of 2, `line iiiii`: the code that the hunk replaces reads differently.", "    -line iiiiiiiii\n    +line changed upstream\n",
		"`lib/0001-first` conflicts in this file, too", "On example.org/lib v1.3.0. Drop when: never",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the report lacks %q:\n%s", want, page)
		}
	}
}

func TestAddedFilesOnAnotherBase(t *testing.T) {
	addBeside := func(c *checkout) { c.write(c.root, patchDir+"/lib/_files/0002-second/sub/beside.txt", "added\n") }
	for name, tc := range map[string]struct {
		edit func(c *checkout)
		want string // of the report
		fit  fit
	}{
		"the same base": {func(*checkout) {}, "and of the 2 files that they add 0.", applies},
		"a file of that name": {func(c *checkout) { c.write(c.base, "new.txt", "upstream's\n") },
			"- `new.txt`, which the patch adds: the base has a file of this name.", conflicts},
		"no package": {func(c *checkout) { c.ok(os.RemoveAll(filepath.Join(c.base, "sub"))) },
			"- `sub/beside.txt`, which the patch adds: the base does not have this package.", conflicts},
	} {
		t.Run(name, func(t *testing.T) {
			c := withTwoPatches(t)
			addBeside(c)
			r := c.rehearse(tc.edit)
			if got := r.patches[1].worst(); got != tc.fit {
				t.Errorf("0002 %s, want: %s", got, tc.fit)
			}
			if page := r.markdown(); !strings.Contains(page, tc.want) {
				t.Errorf("the report lacks %q:\n%s", tc.want, page)
			}
		})
	}
}

func TestVersionsOfABase(t *testing.T) {
	p := &project{modules: []*module{{path: "k8s.io/client-go", version: "v0.37.0"}, {path: "k8s.io/kubernetes", version: "v1.37.0"}}}
	for base, want := range map[string]string{"v1.36.3": "v0.36.3 v1.36.3", "v1.38.0-alpha.0": "v0.38.0-alpha.0 v1.38.0-alpha.0"} {
		other, err := p.at(base)
		if err != nil {
			t.Fatal(err)
		}
		if got := other.modules[0].version + " " + other.modules[1].version; got != want {
			t.Errorf("%s: modules %s, want %s", base, got, want)
		}
	}
	c := &checkout{t: t}
	_, err := p.at("1.36.3")
	c.fails(err, `base "1.36.3"`, "v1.36.3")
	p.modules[0].version = "v0.36.0"
	_, err = p.at("v1.36.3")
	c.fails(err, "k8s.io/client-go v0.36.0", "v1.37.0")
}

func TestChooseBases(t *testing.T) {
	for name, tc := range map[string]struct{ released, staged, want string }{
		"newest release before, and all that is newer": {"v1.35.9 v1.36.0 v1.36.3 v1.36.4-rc.0 v1.37.1", "v0.36.6 v0.37.0 v0.37.1 v0.38.0-alpha.0", "v1.36.3 v1.37.1 v1.38.0-alpha.0"},
		"nothing newer":  {"v1.36.0", "v0.36.0 v0.37.0", "v1.36.0"},
		"nothing before": {"v1.35.0 v1.37.1", "v0.37.0 v0.37.1", "v1.37.1"},
	} {
		if got := strings.Join(choose(strings.Fields(tc.released), strings.Fields(tc.staged), "v0.37.0"), " "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestPageOfAnotherSeriesIsNoticed(t *testing.T) {
	c := withTwoPatches(t)
	c.fails(c.project().checkRehearsalPage(), rehearsalPage, "make rebase-rehearsal")
	c.write(c.root, rehearsalPage, "<!-- series "+c.project().sum()+" -->\n")
	c.ok(c.project().checkRehearsalPage())
	c.replace("0001-first", "line nine", "line 9")
	c.fails(c.project().checkRehearsalPage(), rehearsalPage, "make rebase-rehearsal")
}
