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
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/build/stamp"
)

// patience is how long a build may take before it is worth a progress bar.
const patience = 2 * time.Second

// build runs go build. What is up to date costs a second or two and says nothing.
func (t target) build(root string, info stamp.Stamp) error {
	out := filepath.Join(root, "_output", "bin", filepath.FromSlash(t.path()))
	var args []string
	if t.version != nil {
		args = append(args, "-ldflags", t.version(info))
	}
	var stderr bytes.Buffer
	cmd := t.command(root, append(append([]string{"build", "-v", "-o", out}, args...), t.pkg)...)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	progress := newProgress(t.path(), func() int { return t.countStale(root) })
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		line := lines.Text()
		// With -v go prints the path of each package that it compiles; all else is a complaint.
		if strings.ContainsAny(line, " \t") || strings.HasPrefix(line, "#") {
			fmt.Fprintln(&stderr, line)
			continue
		}
		progress.compiled.Add(1)
	}
	err = errors.Join(lines.Err(), cmd.Wait())
	progress.done()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", t.name, err, strings.TrimSpace(stderr.String()))
	}
	if took := time.Since(start); took > patience {
		fmt.Printf("built %-34s %s\n", t.path(), took.Round(time.Second))
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

// countStale says how many packages are still to be compiled, 0 if that cannot be told.
func (t target) countStale(root string) int {
	out, err := t.command(root, "list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}", t.pkg).Output()
	if err != nil {
		return 0
	}
	return len(strings.Fields(string(out)))
}

// progress shows a bar on a terminal, a line every 10 s elsewhere, and nothing for a short build.
type progress struct {
	compiled atomic.Int64
	stop     chan struct{}
	stopped  chan struct{}
}

func newProgress(name string, count func() int) *progress {
	p := &progress{stop: make(chan struct{}), stopped: make(chan struct{})}
	go p.run(name, count)
	return p
}

func (p *progress) done() {
	close(p.stop)
	<-p.stopped
}

func (p *progress) run(name string, count func() int) {
	defer close(p.stopped)
	start := time.Now()
	select {
	case <-p.stop:
		return
	case <-time.After(patience):
	}
	total := make(chan int64, 1)
	go func() {
		stale := int64(count())
		total <- p.compiled.Load() + stale
	}()
	if !term.IsTerminal(int(os.Stdout.Fd())) {
		p.printLines(name, start, total)
		return
	}
	bars := mpb.New(mpb.WithWidth(40), mpb.WithRefreshRate(200*time.Millisecond))
	bar := bars.AddBar(0,
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name("building "+name+" ")),
		mpb.AppendDecorators(decor.CountersNoUnit("%d/%d packages"), decor.Elapsed(decor.ET_STYLE_GO, decor.WC{W: 8})))
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case n := <-total:
			bar.SetTotal(n+1, false) // linking is the last piece of work
		case <-tick.C:
			bar.SetCurrent(p.compiled.Load())
		case <-p.stop:
			bar.Abort(true)
			bars.Wait()
			return
		}
	}
}

func (p *progress) printLines(name string, start time.Time, total <-chan int64) {
	all := int64(0)
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case all = <-total:
		case <-tick.C:
			fmt.Printf("building %-31s %d/%d packages, %s\n", name, p.compiled.Load(), max(all, p.compiled.Load()), time.Since(start).Round(time.Second))
		case <-p.stop:
			return
		}
	}
}
