// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/display"
	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/logs"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/story"
)

// Plan is what to run.
type Plan struct {
	Stories []story.Story
	Arms    []controlplane.Arm
	// Nodes is how many nodes die where all die.
	Nodes int
}

// Run runs every story on every arm, shows them on the screen and writes the report. It returns an error
// if one could not be run, or if a story proves nothing. When it returns every process is gone.
func Run(ctx context.Context, plan Plan, screen display.Screen, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "fresh-kcm-demo-")
	if err != nil {
		return fmt.Errorf("making the demo's directory: %w", err)
	}
	ctx, closeLog, err := logs.ToFile(ctx, filepath.Join(dir, "staleness-lab.log"))
	if err != nil {
		return err
	}
	b := newBoard(plan)
	drawing, stopDrawing := context.WithCancel(context.WithoutCancel(ctx))
	var drawer sync.WaitGroup
	drawer.Go(func() { b.draw(drawing, screen) })

	results, err := runAll(ctx, plan, dir, b)
	stopDrawing()
	drawer.Wait()
	err = errors.Join(err, closeLog())
	if ctx.Err() != nil {
		return errors.Join(errors.New("stopped before all stories had run"), os.RemoveAll(dir))
	}
	if err != nil {
		return fmt.Errorf("%w\nlogs are kept in %s", err, dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := WriteReport(out, plan, results); err != nil {
		return err
	}
	for _, s := range plan.Stories {
		err = errors.Join(err, s.Proves(results[s.ID]))
	}
	return err
}

// runAll runs as many at once as there are processors: a control plane keeps about one busy.
func runAll(ctx context.Context, plan Plan, dir string, b *board) (Results, error) {
	results := Results{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.NumCPU())
	for _, s := range plan.Stories {
		results[s.ID] = map[controlplane.Arm]story.Result{}
		for _, arm := range plan.Arms {
			g.Go(func() error {
				if ctx.Err() != nil {
					return nil // another one failed, which is the error to return
				}
				b.start(s.ID, arm)
				r, err := s.Run(ctx, story.Options{
					Arm: arm, Nodes: plan.Nodes,
					Dir:      filepath.Join(dir, s.ID+"-"+string(arm)),
					Progress: func(what, details string) { b.say(s.ID, arm, what, details) },
				})
				if err != nil {
					how := "failed"
					if ctx.Err() != nil {
						how = "stopped"
					}
					b.end(s.ID, arm, how)
					return fmt.Errorf("story %s on %s: %w", s.ID, arm, err)
				}
				b.end(s.ID, arm, "done: "+outcome(r))
				mu.Lock()
				defer mu.Unlock()
				results[s.ID][arm] = r
				return nil
			})
		}
	}
	return results, g.Wait()
}

func outcome(r story.Result) string {
	if !story.IsWrong(r) {
		return "ok"
	}
	for _, f := range r.Figures() {
		if f.Outcome == story.Wrong {
			return "WRONG, " + f.Name + ": " + f.Value
		}
	}
	return ""
}

// draw shows the board whenever it changed, and at least often enough for its clocks.
func (b *board) draw(ctx context.Context, screen display.Screen) {
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for {
		screen.Show(b.snapshot())
		select {
		case <-ctx.Done():
			screen.Show(b.snapshot())
			return
		case <-b.changed:
		case <-ticker.C:
		}
	}
}
