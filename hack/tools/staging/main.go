// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command staging makes the patched copies of upstream modules that the root go.mod names in its
// replace lines, and turns an edited copy back into patches.
//
//	staging apply            make or refresh _output/staging (seconds; nothing to do is a few milliseconds)
//	staging update [PATCH]   write edits of the copies back to staging-patches/; PATCH, as
//	                         "kubernetes/0003-title", takes the files that no patch touches yet
//	staging verify           series, headers, sizes, limits, fuzz 0, no offsets, round trip, added files as in the copies
//	staging packages         list the Go packages that the patches touch
//	staging files            list the copies of the files that the patches add
//	staging rehearse [BASE]  say how the series fares on another base, such as v1.36.3; without BASE, write
//	                         docs/rebase-rehearsal.md for the minor version before and all that is newer
//	staging rehearsed        say whether that page was made of the series as it is now
//
// It uses the standard library, git and go only: it has to run before anything else can be built.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

const calls = "apply, update [PATCH], verify, packages, files, rehearse [BASE] or rehearsed"

func main() {
	root := flag.String("root", ".", "root of the checkout")
	force := flag.Bool("force", false, "apply: throw away edits of the copies that are not in a patch yet")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: staging [-root DIR] [-force] apply | update [PATCH] | verify | packages | files | rehearse [BASE] | rehearsed")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(*root, *force, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "staging:", err)
		os.Exit(1)
	}
}

func run(root string, force bool, args []string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return errors.New("say " + calls)
	}
	project, err := load(root)
	if err != nil {
		return err
	}
	switch {
	case args[0] == "apply" && len(args) == 1:
		return project.apply(force)
	case args[0] == "update" && len(args) <= 2:
		into := ""
		if len(args) == 2 {
			into = args[1]
		}
		return project.update(into)
	case args[0] == "verify" && len(args) == 1:
		return project.verify()
	case args[0] == "packages" && len(args) == 1:
		for _, pkg := range project.packages() {
			fmt.Println(pkg)
		}
		return nil
	case args[0] == "files" && len(args) == 1:
		for _, file := range project.files() {
			fmt.Println(file)
		}
		return nil
	case args[0] == "rehearse" && len(args) == 2:
		report, err := project.rehearsalReport(args[1:])
		if err == nil {
			fmt.Print(report)
		}
		return err
	case args[0] == "rehearse" && len(args) == 1:
		return project.writeRehearsalPage()
	case args[0] == "rehearsed" && len(args) == 1:
		return project.checkRehearsalPage()
	}
	return fmt.Errorf("unknown call %q: say %s", args, calls)
}
