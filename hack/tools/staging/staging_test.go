// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const testHeader = "Description: opens a seam\n  for the test\nWhy downstream: x\nUpstream: none found\nDiffers from upstream: x\nGate: none\nDrop when: never\nSize:\n\n"

// checkout is a project with one module, "lib", whose published form is a folder of two files.
type checkout struct {
	t    *testing.T
	root string
	base string
	// edited are the files that are newer than the copy they are in.
	edited map[string]bool
}

func newCheckout(t *testing.T) *checkout {
	c := &checkout{t: t, root: t.TempDir(), base: t.TempDir(), edited: map[string]bool{}}
	c.write(c.base, "one.txt", numbered(1, 40))
	c.write(c.base, "sub/two.txt", numbered(1, 5))
	c.write(c.root, "go.mod", "module example.org/x\n\nrequire example.org/lib v1.2.3\n\nreplace example.org/lib => ./_output/staging/lib\n")
	c.write(c.root, seriesFile, "# none yet\n")
	return c
}

func numbered(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		b.WriteString("line " + strings.Repeat("i", i) + "\n")
	}
	return b.String()
}

func (c *checkout) write(dir, name, text string) {
	c.t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

func (c *checkout) read(dir, name string) string {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}

func (c *checkout) tree() string { return filepath.Join(c.root, outDir, "lib") }

// edit replaces text in the copy, as an editor would some time after the copy was made.
func (c *checkout) edit(name, old, new string) {
	c.t.Helper()
	c.write(c.tree(), name, strings.Replace(c.read(c.tree(), name), old, new, 1))
	c.edited[filepath.Join(c.tree(), name)] = true
	c.touch()
}

// touch makes the last apply or update older than the edit that was just made.
func (c *checkout) touch() {
	c.t.Helper()
	earlier := time.Now().Add(-time.Hour)
	if err := os.Chtimes(c.project().modules[0].stampFile(c.root), earlier, earlier); err != nil {
		c.t.Fatal(err)
	}
	err := filepath.WalkDir(c.tree(), func(file string, _ fs.DirEntry, err error) error {
		if err != nil || c.edited[file] {
			return err
		}
		return os.Chtimes(file, earlier, earlier)
	})
	c.ok(err)
}

func (c *checkout) project() *project {
	c.t.Helper()
	p, err := load(c.root)
	if err != nil {
		c.t.Fatal(err)
	}
	p.modules[0].cached = c.base
	return p
}

func (c *checkout) ok(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// fails checks that err says all of want, on one line for a person to act on.
func (c *checkout) fails(err error, want ...string) {
	c.t.Helper()
	if err == nil {
		c.t.Fatalf("want an error that says %q, got none", want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			c.t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// withTwoPatches makes patch 0001 on both files and patch 0002 on one.txt and a new file.
func withTwoPatches(t *testing.T) *checkout {
	c := newCheckout(t)
	c.ok(c.project().apply(false))
	c.edit("one.txt", "line iiiiiiiii\n", "line nine\n")
	c.edit("sub/two.txt", "line iii\n", "line three\n")
	c.ok(c.project().update("lib/0001-first"))
	c.header("0001-first")
	c.ok(c.project().apply(true))
	c.edit("one.txt", numbered(20, 20), "line twenty\n")
	c.write(c.tree(), "new.txt", "new\n")
	c.ok(c.project().update("lib/0002-second")) // one.txt goes to 0001: it is the last that touches it
	c.header("0002-second")
	return c
}

// header fills in the header that update leaves empty.
func (c *checkout) header(name string) {
	c.t.Helper()
	file := patchDir + "/lib/" + name + ".patch"
	_, diff, _ := strings.Cut(c.read(c.root, file), "\n\n")
	c.write(c.root, file, testHeader+diff)
	c.ok(c.project().update("")) // writes Size
	clear(c.edited)              // they are in a patch now
}

func TestRoundTrip(t *testing.T) {
	c := withTwoPatches(t)
	c.ok(c.project().apply(true))
	c.write(c.root, seriesFile, "lib/0001-first.patch\n# The patches above: at most 6 lines edited, 0 added.\nlib/0002-second.patch\n# The patches above, to the limit before: at most 0 lines edited, 1 added.\n")
	c.ok(c.project().verify())
	for name, want := range map[string]string{"one.txt": "line twenty\n", "sub/two.txt": "line three\n", "new.txt": "new\n"} {
		if !strings.Contains(c.read(c.tree(), name), want) {
			t.Errorf("%s lacks %q after apply", name, want)
		}
	}
	if p := c.project(); strings.Contains(p.series[1].diff, "one.txt") || !strings.Contains(p.series[0].diff, "line twenty") {
		t.Error("an edit goes to the last patch that touches the file")
	}
	before := c.read(c.root, patchDir+"/lib/0001-first.patch")
	c.ok(c.project().update(""))
	if after := c.read(c.root, patchDir+"/lib/0001-first.patch"); after != before {
		t.Error("update without edits changes a patch")
	}
}

func TestPatchesStackOnOneFile(t *testing.T) {
	c := withTwoPatches(t)
	c.ok(c.project().apply(true))
	// By hand, as a rebase may leave it: 0002 also touches what 0001 made of one.txt.
	c.append("0002-second", "diff --git a/one.txt b/one.txt\n--- a/one.txt\n+++ b/one.txt\n@@ -1,4 +1,4 @@\n line i\n-line ii\n+line two\n line iii\n line iiii\n")
	c.ok(c.project().apply(true))
	c.edit("one.txt", "line two\n", "line 2\n")
	c.ok(c.project().update(""))
	c.ok(c.project().verify())
	p := c.project()
	if !strings.Contains(p.series[1].diff, "+line 2\n") || strings.Contains(p.series[0].diff, "line 2\n") {
		t.Errorf("the edit belongs to 0002:\n%s\n%s", p.series[0].diff, p.series[1].diff)
	}
}

func TestPatchThatDoesNotApply(t *testing.T) {
	c := withTwoPatches(t)
	c.write(c.base, "one.txt", strings.Replace(c.read(c.base, "one.txt"), numbered(20, 20), "line changed upstream\n", 1))
	c.ok(os.RemoveAll(c.tree()))
	c.fails(c.project().apply(true), "0001-first.patch", "hunk #2", "one.txt", "example.org/lib v1.2.3")
	c.fails(c.project().verify(), "hunk #2", "one.txt")
	if _, err := os.Stat(filepath.Join(c.root, outDir, ".lib.new")); err == nil {
		t.Error("a failed apply leaves its half-made copy behind")
	}
}

func TestOffsetIsNotAccepted(t *testing.T) {
	c := withTwoPatches(t)
	c.write(c.base, "one.txt", "a new first line\n"+c.read(c.base, "one.txt"))
	c.fails(c.project().verify(), "offset 1 line", "make update-patches")
}

func TestEditsAreNotLost(t *testing.T) {
	c := withTwoPatches(t)
	c.ok(c.project().apply(true))
	c.edit("sub/two.txt", "line iiii\n", "line four\n")
	c.fails(c.project().verify(), "sub/two.txt", "make update-patches")
	c.ok(c.project().apply(false)) // nothing to do: the edit stays
	c.ok(c.project().apply(true))
	if strings.Contains(c.read(c.tree(), "sub/two.txt"), "line four") {
		t.Error("a forced apply keeps an edit")
	}
	c.edit("sub/two.txt", "line iiii\n", "line four\n")
	c.write(c.root, seriesFile, "lib/0001-first.patch\n")
	c.fails(c.project().apply(false), "sub/two.txt", "make update-patches", "FORCE=1")
	c.fails(c.project().update(""), "not made of the patches as they are now")
	if !strings.Contains(c.read(c.tree(), "sub/two.txt"), "line four") {
		t.Error("the refused apply lost the edit")
	}
	c.ok(c.project().apply(true))
}

func TestPackages(t *testing.T) {
	c := newCheckout(t)
	c.ok(c.project().apply(false))
	c.write(c.tree(), "sub/seam.go", "package sub\n")
	c.write(c.tree(), "sub/notes.txt", "no package\n")
	c.ok(c.project().update("lib/0001-seam"))
	if got := c.project().packages(); len(got) != 1 || got[0] != "example.org/lib/sub" {
		t.Errorf("packages %q", got)
	}
}

func TestBadInput(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(c *checkout)
		want  string
	}{
		"missing header field": {func(c *checkout) {
			c.replace("0001-first", "Gate: none\n", "")
		}, `header fields are`},
		"empty header field": {func(c *checkout) {
			c.replace("0001-first", "Drop when: never", "Drop when:")
		}, `"Drop when" is empty`},
		"too large": {func(c *checkout) {
			c.replace("0001-first", "Size: 6 lines edited", "Size: 5 lines edited")
		}, `Size is "5 lines edited, 0 added, 0 of tests", but the patch has 6 lines edited`},
		"adds a file itself": {func(c *checkout) {
			c.addInline("0001-first", "third.txt")
		}, "0001-first.patch adds third.txt: a patch edits what upstream has"},
		"adds what another adds": {func(c *checkout) {
			c.write(c.root, patchDir+"/lib/_files/0001-first/new.txt", "new\n")
		}, "0002-second.patch adds new.txt, which lib/0001-first.patch adds, too"},
		"edits what another adds": {func(c *checkout) {
			c.write(c.root, patchDir+"/lib/_files/0001-first/third.txt", "new\n")
			c.append("0002-second", "diff --git a/third.txt b/third.txt\n--- a/third.txt\n+++ b/third.txt\n@@ -1,1 +1,1 @@\n-new\n+newer\n")
		}, "0002-second.patch edits third.txt, which lib/0001-first.patch adds: edit that file"},
		"adds what upstream has": {func(c *checkout) {
			c.write(c.base, "new.txt", "upstream's\n")
		}, "0002-second.patch adds new.txt, which example.org/lib v1.2.3 has"},
		"files of no patch": {func(c *checkout) {
			c.write(c.root, patchDir+"/lib/_files/0003-third/third.txt", "third\n")
		}, "_files/0003-third belongs to no patch"},
		"file beside the folders": {func(c *checkout) {
			c.write(c.root, patchDir+"/lib/_files/third.txt", "third\n")
		}, "_files/third.txt belongs to no patch"},
		"file that is not as the copy": {func(c *checkout) {
			c.write(c.root, patchDir+"/lib/_files/0002-second/new.txt", "newer\n")
		}, `lib/new.txt is not as lib/0002-second has it: run "make patch"`},
		"not in the series": {func(c *checkout) {
			c.write(c.root, seriesFile, "lib/0001-first.patch\n")
		}, "0002-second.patch is not in"},
		"listed but absent": {func(c *checkout) {
			c.write(c.root, seriesFile, "lib/0003-third.patch\n")
		}, "0003-third.patch"},
		"more than the limit": {func(c *checkout) {
			c.write(c.root, seriesFile, "lib/0001-first.patch\nlib/0002-second.patch\n# The patches above: at most 6 lines edited, 0 added.\n")
		}, "patches 0001 to 0002 have 6 lines edited and 1 added, at most 6 and 0 are allowed"},
		"more than the second limit": {func(c *checkout) {
			c.write(c.root, seriesFile, "lib/0001-first.patch\n# The patches above: at most 6 lines edited, 0 added.\nlib/0002-second.patch\n# The patches above, to the limit before: at most 6 lines edited, 0 added.\n")
		}, "patches 0002 to 0002 have 0 lines edited and 1 added, at most 6 and 0 are allowed"},
		"no limit for the last": {func(c *checkout) {
			c.write(c.root, seriesFile, "lib/0001-first.patch\n# The patches above: at most 6 lines edited, 0 added.\nlib/0002-second.patch\n")
		}, "no limit comes after lib/0002-second.patch"},
		"limit for none": {func(c *checkout) {
			c.write(c.root, seriesFile, "# The patches above: at most 6 lines edited, 0 added.\nlib/0001-first.patch\nlib/0002-second.patch\n# The patches above: at most 6 lines edited, 1 added.\n")
		}, "a limit has no patches above it"},
		"interface without a name": {func(c *checkout) {
			c.write(c.root, patchDir+"/lib/_files/0002-second/new.go", "if s, ok := store.(interface{ Wake() }); ok {\n")
		}, `new.go: "if s, ok := store.(interface{ Wake() }); ok {": name the interface`},
		"numbers fall": {func(c *checkout) {
			c.write(c.root, seriesFile, "lib/0002-second.patch\nlib/0001-first.patch\n")
		}, "number 0001 comes after 0002"},
		"unknown module": {func(c *checkout) {
			c.write(c.root, seriesFile, "other/0001-first.patch\n")
		}, `no module "other"`},
	} {
		t.Run(name, func(t *testing.T) {
			c := withTwoPatches(t)
			tc.spoil(c)
			p, err := load(c.root)
			if err == nil {
				p.modules[0].cached = c.base
				err = p.verify()
			}
			c.fails(err, tc.want)
		})
	}
}

func (c *checkout) append(name, diff string) {
	c.t.Helper()
	file := patchDir + "/lib/" + name + ".patch"
	text := c.read(c.root, file)
	if !strings.Contains(text, "\n\n") {
		text += "\n" // between the header and the first diff
	}
	c.write(c.root, file, text+diff)
}

// addInline has the patch itself make a file of one line.
func (c *checkout) addInline(name, file string) {
	c.append(name, "diff --git a/"+file+" b/"+file+"\nnew file mode 100644\n--- /dev/null\n+++ b/"+file+"\n@@ -0,0 +1,1 @@\n+inline\n")
}

func (c *checkout) replace(name, old, new string) {
	c.t.Helper()
	file := patchDir + "/lib/" + name + ".patch"
	c.write(c.root, file, strings.Replace(c.read(c.root, file), old, new, 1))
}

func TestUpdateNeedsAPlaceForNewFiles(t *testing.T) {
	c := withTwoPatches(t)
	c.ok(c.project().apply(true))
	c.write(c.tree(), "third.txt", "third\n")
	c.fails(c.project().update(""), "third.txt", "PATCH=lib/NNNN-title")
	c.fails(c.project().update("lib/0001-again"), "above 0002")
	c.fails(c.project().update("lib/third"), "MODULE/NNNN-title")
	c.ok(c.project().update("lib/0002-second"))
	if p := c.project(); p.series[1].added["third.txt"] != "third\n" || c.read(c.root, patchDir+"/lib/_files/0002-second/third.txt") != "third\n" {
		t.Error("0002 should have taken third.txt")
	}
}

func TestAddedFilesAreFiles(t *testing.T) {
	c := withTwoPatches(t)
	const added = patchDir + "/lib/_files/0002-second/new.txt"
	c.ok(c.project().apply(true))
	c.edit("new.txt", "new\n", "newer\n")
	c.fails(c.project().verify(), "new.txt", "make update-patches")
	c.ok(c.project().update(""))
	if got := c.read(c.root, added); got != "newer\n" {
		t.Errorf("after an edit of the copy the file has %q", got)
	}
	c.ok(c.project().verify())

	c.write(c.root, added, "edited\n")
	c.ok(c.project().apply(false))
	if got := c.read(c.tree(), "new.txt"); got != "edited\n" {
		t.Errorf("after an edit of the file the copy has %q", got)
	}
	if got := c.project().files(); len(got) != 1 || got[0] != outDir+"/lib/new.txt" {
		t.Errorf("files %q", got)
	}

	c.ok(os.Remove(filepath.Join(c.tree(), "new.txt")))
	c.fails(c.project().update(""), "0002-second.patch would be empty")
	if got := c.read(c.root, added); got != "edited\n" {
		t.Errorf("the refused update left %q", got)
	}
}

func TestUpdateMovesFilesOutOfAPatch(t *testing.T) {
	c := withTwoPatches(t)
	c.addInline("0001-first", "sub/third.txt")
	c.ok(c.project().apply(true))
	if got := c.read(c.tree(), "sub/third.txt"); got != "inline\n" {
		t.Errorf("the copy has %q", got)
	}
	c.ok(c.project().update(""))
	if got := c.read(c.root, patchDir+"/lib/_files/0001-first/sub/third.txt"); got != "inline\n" {
		t.Errorf("the file has %q", got)
	}
	if text := c.read(c.root, patchDir+"/lib/0001-first.patch"); strings.Contains(text, "third.txt") || !strings.Contains(text, "Size: 6 lines edited, 1 added, 0 of tests\n") {
		t.Errorf("the patch is\n%s", text)
	}
	c.ok(c.project().verify())
}

func TestSizeCountsTestsApart(t *testing.T) {
	p := &patch{added: map[string]string{"a.go": "1\n2\n", "a_test.go": "1\n2\n3\n"}, diff: "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- x\n+++ x\n y\n"}
	if got, want := p.size().String(), "2 lines edited, 2 added, 3 of tests"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestTextOfAnInlineFile(t *testing.T) {
	f := splitDiff("diff --git a/x b/x\n--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file\n")[0]
	if got := f.text(); got != "one\ntwo" {
		t.Errorf("text is %q", got)
	}
}
