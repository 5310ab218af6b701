// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

const (
	// patience is how long the builds may take before they are worth a progress bar: what is up to date says nothing.
	patience = 2 * time.Second
	// sayEvery is how often a line is printed where there is no terminal.
	sayEvery = 10 * time.Second
)

// progress knows how far the builds of some binaries are.
type progress struct {
	begin   time.Time
	targets []target

	mu sync.Mutex
	// current is the index of the binary that is being built.
	current int
	// download is the last module that go said it downloads, while nothing was compiled after it.
	download string
	// compiled packages, in go's order.
	compiled []modulePackage
	// all is nil until go has said what is stale.
	all *inventory
}

// starts notes that a binary is being built.
func (p *progress) starts(index int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = index
}

// heard takes a line of what "go build -v" says, and reports whether it was about its progress.
func (p *progress) heard(dir, line string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if module, ok := strings.CutPrefix(line, "go: downloading "); ok {
		p.download = module
		return true
	}
	if strings.ContainsAny(line, " \t") || strings.HasPrefix(line, "#") {
		return false
	}
	p.download = ""
	p.compiled = append(p.compiled, modulePackage{dir, line})
	return true
}

func (p *progress) know(all *inventory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = all
}

// status is how far the builds are at one moment.
type status struct {
	// what is under way: "building etcd (2 of 7)".
	what string
	// done and total are packages; total is 0 while it is not known.
	done, total int
	elapsed     time.Duration
}

func (p *progress) status(now time.Time) status {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[p.current]
	s := status{done: len(p.compiled), elapsed: now.Sub(p.begin).Round(time.Second)}
	if p.all != nil {
		compiled := make(map[string]bool, len(p.compiled))
		for _, c := range p.compiled {
			compiled[p.all.action[c]] = true
		}
		left := 0
		for action := range p.all.stale {
			if !compiled[action] {
				left++
			}
		}
		s.total = s.done + left
	}
	s.what = fmt.Sprintf("building %s (%d of %d)", t.path(), p.current+1, len(p.targets))
	if p.download != "" {
		s.what += ", downloading " + p.download
	}
	return s
}

func (s status) String() string {
	packages := fmt.Sprintf("%d packages compiled, counting what is left", s.done)
	if s.total > 0 {
		packages = fmt.Sprintf("%d of %d packages compiled", s.done, s.total)
	}
	return fmt.Sprintf("%s: %s, %s", s.what, packages, s.elapsed)
}

// show shows the progress until stop is closed: a bar on a terminal, a line every 10 s elsewhere, nothing for a short
// build.
func (p *progress) show(root string, stop <-chan struct{}) {
	select {
	case <-stop:
		return
	case <-time.After(patience):
	}
	go func() {
		// Without the total there are still the packages done.
		if all, err := takeInventory(root, p.targets); err == nil {
			p.know(all)
		}
	}()
	if term.IsTerminal(int(os.Stdout.Fd())) {
		p.showBar(stop)
		return
	}
	tick := time.NewTicker(sayEvery)
	defer tick.Stop()
	for {
		fmt.Println(p.status(time.Now()))
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}

func (p *progress) showBar(stop <-chan struct{}) {
	const redraw = 200 * time.Millisecond
	bars := mpb.New(mpb.WithWidth(30), mpb.WithRefreshRate(redraw))
	bar := bars.AddBar(0,
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return p.status(time.Now()).what + " " })),
		mpb.AppendDecorators(decor.CountersNoUnit("%d of %d packages "), decor.Elapsed(decor.ET_STYLE_GO)))
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s := p.status(time.Now())
			if s.total > 0 {
				bar.SetTotal(int64(s.total)+1, false) // never complete: linking is the last piece of work
			}
			bar.SetCurrent(int64(s.done))
		case <-stop:
			bar.Abort(true)
			bars.Wait()
			return
		}
	}
}
