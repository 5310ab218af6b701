// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command build builds a kube-controller-manager for each mutant, or for those named, into DIR/NAME.
//
//	build -out DIR [NAME...]
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/internal/mutants"
)

func main() {
	root := flag.String("root", ".", "root of the checkout")
	out := flag.String("out", "", "folder for the binaries")
	flag.Parse()
	if err := run(*root, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

func run(root, out string, names []string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	chosen := mutants.All()
	if len(names) > 0 {
		chosen = nil
	}
	for _, name := range names {
		m, err := mutants.Find(name)
		if err != nil {
			return err
		}
		chosen = append(chosen, m)
	}
	for _, m := range chosen {
		if err := build(root, out, m); err != nil {
			return err
		}
	}
	return nil
}

func build(root, out string, m mutants.Mutant) error {
	overlay, err := m.Overlay(root, filepath.Join(out, "edits", m.Name))
	if err != nil {
		return err
	}
	started := time.Now()
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-overlay", overlay, "-o", filepath.Join(out, m.Name), "./cmd/kube-controller-manager")
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	fmt.Printf("built without %-20s %s\n", m.Name, time.Since(started).Round(time.Second))
	return nil
}
