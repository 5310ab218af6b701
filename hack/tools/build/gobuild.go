// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/build/stamp"
)

// buildAll builds the binaries one after the other. What is up to date costs a second or two and says nothing.
func buildAll(root string, targets []target, info stamp.Stamp) error {
	p := &progress{begin: time.Now(), targets: targets}
	stop := make(chan struct{})
	var shown sync.WaitGroup
	shown.Go(func() { p.show(root, stop) })
	defer shown.Wait()
	defer close(stop)
	for i, t := range targets {
		p.starts(i)
		if err := t.build(root, info, p); err != nil {
			return err
		}
	}
	if took := time.Since(p.begin); took > patience {
		fmt.Printf("built %d binaries, %d packages compiled, %s\n", len(targets), p.status(time.Now()).done, took.Round(time.Second))
	}
	return nil
}

// build runs go build.
func (t target) build(root string, info stamp.Stamp, p *progress) error {
	out := filepath.Join(root, "_output", "bin", filepath.FromSlash(t.path()))
	var args []string
	if t.version != nil {
		args = append(args, "-ldflags", t.version(info))
	}
	var complaints bytes.Buffer
	cmd := t.command(root, append(append([]string{"build", "-v", "-o", out}, args...), t.pkg)...)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		if !p.heard(t.dir, lines.Text()) {
			fmt.Fprintln(&complaints, lines.Text())
		}
	}
	if err := errors.Join(lines.Err(), cmd.Wait()); err != nil {
		return fmt.Errorf("%s: %w\n%s", t.name, err, strings.TrimSpace(complaints.String()))
	}
	return nil
}

// path is where the binary goes, below _output/bin.
func (t target) path() string {
	if t.arch == "" {
		return t.name
	}
	return "linux-" + t.arch + "/" + t.name
}

func (t target) command(root string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join(root, t.dir)
	// CGO-free, for images made from scratch; no workspace, so that only go.mod decides.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-trimpath -buildvcs=false")
	if t.arch != "" {
		// The lowest level of each architecture, whatever the environment says: the same bytes everywhere.
		cmd.Env = append(cmd.Env, "GOOS=linux", "GOARCH="+t.arch, "GOAMD64=v1", "GOARM64=v8.0")
	}
	return cmd
}
