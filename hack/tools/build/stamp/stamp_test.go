// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stamp

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const goMod = "module x\n\nrequire (\n\tk8s.io/kubernetes v1.37.0\n)\n\nreplace k8s.io/kubernetes => ./_output/staging/kubernetes\n"

func TestBaseOf(t *testing.T) {
	for version, want := range map[string]string{
		"v1.37.0+fresh.1":  "",
		"v1.37.0+fresh.12": "",
		"v1.37.1+fresh.1":  "go.mod requires k8s.io/kubernetes v1.37.0",
		"v1.36.0+fresh.1":  "go.mod requires k8s.io/kubernetes v1.37.0",
		"v1.37.0":          "want v<base>+fresh.<N>",
		"v1.37.0+fresh.0":  "want v<base>+fresh.<N>",
		"1.37.0+fresh.1":   "want v<base>+fresh.<N>",
		"":                 "want v<base>+fresh.<N>",
	} {
		base, err := baseOf(version, goMod)
		switch {
		case want == "" && (err != nil || base != "v1.37.0"):
			t.Errorf("%q: base %q, error %v", version, base, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: error %v does not say %q", version, err, want)
		}
	}
	if _, err := baseOf("v1.37.0+fresh.1", "module x\n"); err == nil {
		t.Error("a go.mod without k8s.io/kubernetes passes")
	}
}

func TestRead(t *testing.T) {
	root := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", root, "-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_DATE=@1000000000 +0000", "GIT_COMMITTER_DATE=@1000000000 +0000")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	write("go.mod", goMod)
	write(versionFile, "v1.37.0+fresh.3\n")
	write(imageFile, "registry.example/kcm\n")
	run("init", "-q")
	run("add", "-A")
	run("commit", "-qm", "x")

	s, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	if s.TreeState != "clean" || s.Image != "registry.example/kcm:v1.37.0_fresh.3" || s.Revision() != s.Commit || s.Date.Format(time.RFC3339) != "2001-09-09T01:46:40Z" || len(s.Commit) != 40 {
		t.Errorf("stamp %+v", s)
	}
	for _, want := range []string{
		"-X k8s.io/component-base/version.gitVersion=v1.37.0+fresh.3", "-X k8s.io/client-go/pkg/version.gitVersion=v1.37.0+fresh.3",
		"-X k8s.io/component-base/version.gitCommit=" + s.Commit, "-X k8s.io/client-go/pkg/version.gitTreeState=clean",
		"-X k8s.io/component-base/version.buildDate=2001-09-09T01:46:40Z", "-X k8s.io/client-go/pkg/version.gitMinor=37",
	} {
		if !strings.Contains(s.Fresh(), want) {
			t.Errorf("flags lack %q", want)
		}
	}
	if !strings.Contains(s.Stock(), "gitVersion=v1.37.0 ") || strings.Contains(s.Stock(), s.Commit) {
		t.Errorf("upstream's binaries are stamped %s", s.Stock())
	}
	write("new", "")
	if s, _ := Read(root); s.TreeState != "dirty" || !strings.HasSuffix(s.Revision(), "-dirty") {
		t.Error("a new file leaves the tree clean")
	}
	t.Setenv("SOURCE_DATE_EPOCH", "tomorrow")
	if _, err := Read(root); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("error %v", err)
	}
}
