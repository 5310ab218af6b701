// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command slowdisk builds an etcd whose disk can be made slow while it runs: each flush of its log takes longer by what the file
// slowdisk-PID in the folder for temporary files says, such as 1s. All else is stock etcd: it answers a write, and tells watches of it, once it
// is flushed, and reads meanwhile.
//
//	slowdisk -out FILE
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is where etcd is built, edited the package of it that flushes files.
const (
	module = "hack/tools/etcd"
	edited = "go.etcd.io/etcd/client/pkg/v3"
	file   = "fileutil/sync_linux.go"
	server = "go.etcd.io/etcd/server/v3"
)

// edits are what of it becomes what.
var edits = [][2]string{
	{"import (\n\t\"os\"\n\t\"syscall\"\n)", "import (\n\t\"fmt\"\n\t\"os\"\n\t\"path/filepath\"\n\t\"syscall\"\n\t\"time\"\n)"},
	{"\treturn syscall.Fdatasync(int(f.Fd()))", `	if delay, err := os.ReadFile(filepath.Join(os.TempDir(), fmt.Sprint("slowdisk-", os.Getpid()))); err == nil {
		d, err := time.ParseDuration(string(delay))
		if err != nil {
			return err
		}
		time.Sleep(d)
	}
	return syscall.Fdatasync(int(f.Fd()))`},
}

func main() {
	root := flag.String("root", ".", "root of the checkout")
	out := flag.String("out", "", "the binary")
	flag.Parse()
	if err := run(*root, *out); err != nil {
		fmt.Fprintln(os.Stderr, "slowdisk:", err)
		os.Exit(1)
	}
}

func run(root, out string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", edited)
	list.Dir, list.Stderr = filepath.Join(root, module), os.Stderr
	dir, err := list.Output()
	if err != nil {
		return err
	}
	files := out + "-files"
	copied := filepath.Join(files, "pkg")
	if err := errors.Join(os.RemoveAll(files), os.CopyFS(copied, os.DirFS(strings.TrimSpace(string(dir))))); err != nil {
		return err
	}
	if err := edit(filepath.Join(copied, filepath.FromSlash(file))); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(root, module, "go.mod"))
	if err != nil {
		return err
	}
	sum, err := os.ReadFile(filepath.Join(root, module, "go.sum"))
	if err != nil {
		return err
	}
	modFile := filepath.Join(files, "go.mod")
	mod = fmt.Appendf(mod, "\nreplace %s => %s\n", edited, copied)
	if err := errors.Join(os.WriteFile(modFile, mod, 0o644), os.WriteFile(filepath.Join(files, "go.sum"), sum, 0o644)); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-modfile", modFile, "-o", out, server)
	build.Dir, build.Stdout, build.Stderr = filepath.Join(root, module), os.Stdout, os.Stderr
	return build.Run()
}

// edit makes the edits in a file.
func edit(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	slow := string(text)
	for _, e := range edits {
		if strings.Count(slow, e[0]) != 1 {
			return fmt.Errorf("%s has not once %q", path, e[0])
		}
		slow = strings.Replace(slow, e[0], e[1], 1)
	}
	return errors.Join(os.Remove(path), os.WriteFile(path, []byte(slow), 0o644))
}
