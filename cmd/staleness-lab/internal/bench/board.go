// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/display"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/run"
)

// board knows how far the benchmarks are.
type board struct {
	begin time.Time

	mu  sync.Mutex
	now run.Progress
}

func newBoard() *board { return &board{begin: time.Now()} }

func (b *board) set(p run.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = p
}

func (b *board) snapshot(at time.Time) view {
	b.mu.Lock()
	defer b.mu.Unlock()
	return view{b.now, at.Sub(b.begin)}
}

// draw shows the board until the context ends.
func (b *board) draw(ctx context.Context, screen display.Screen) {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		screen.Show(b.snapshot(time.Now()))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// view is the board at one moment.
type view struct {
	run.Progress
	elapsed time.Duration
}

var _ display.View = view{}

// Lines shows a bar, the turn and what it does.
func (v view) Lines(columns int) []display.Line {
	const width = 30
	filled := 0
	if v.Turns > 0 {
		filled = width * v.Done / v.Turns
	}
	var bar strings.Builder
	for i := range width {
		if i < filled {
			bar.WriteString("=")
		} else {
			bar.WriteString(" ")
		}
	}
	return []display.Line{
		{Text: fmt.Sprintf("Benchmarks [%s] %d of %d turns, %s", bar.String(), v.Done, v.Turns, display.Clock(v.elapsed)), Style: display.Bold},
		{Text: v.Turn + ": " + v.What},
	}
}

// Facts says each turn that begins.
func (v view) Facts() []display.Fact {
	if v.Turn == "" {
		return nil
	}
	return []display.Fact{{Key: "turn", Text: fmt.Sprintf("%d of %d turns done; %s", v.Done, v.Turns, v.Turn)}}
}
