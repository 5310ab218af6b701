// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Series scrapes a page again and again and keeps all scrapes in one folder.
type Series struct {
	get func(context.Context) ([]byte, error)
	dir string

	stop context.CancelFunc
	done sync.WaitGroup

	mu   sync.Mutex // guards what follows
	most map[string]float64
	err  error
}

// watched are the gauges of which the largest value of all scrapes matters.
var watched = []string{"workqueue_depth", "informer_staleness_handler_lag_seconds"}

// Record scrapes now and every so often until Stop, into a folder that it makes. Its first scrape has been made when it
// returns.
func Record(ctx context.Context, dir string, every time.Duration, get func(context.Context) ([]byte, error)) (*Series, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("keeping scrapes: %w", err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Series{get: get, dir: dir, stop: stop, most: map[string]float64{}}
	if _, err := s.Scrape(ctx); err != nil {
		stop()
		return nil, err
	}
	s.done.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if _, err := s.Scrape(ctx); err != nil && ctx.Err() == nil {
					s.mu.Lock()
					s.err = err
					s.mu.Unlock()
				}
			}
		}
	})
	return s, nil
}

// Scrape scrapes once more and returns what it found.
func (s *Series) Scrape(ctx context.Context) (Metrics, error) {
	page, err := s.get(ctx)
	if err != nil {
		return nil, err
	}
	at := time.Now()
	metrics, err := Parse(page)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range watched {
		if v, ok := metrics.Max(name); ok {
			s.most[name] = max(s.most[name], v)
		}
	}
	return metrics, keep(filepath.Join(s.dir, strconv.FormatInt(at.UnixMilli(), 10)+".prom"), page)
}

// Most returns the largest value that a watched gauge had in any scrape, and whether it was there.
func (s *Series) Most(name string) (float64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.most[name]
	return v, ok
}

// Stop ends it. It returns the last reason why a scrape is missing.
func (s *Series) Stop() error {
	s.stop()
	s.done.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Judge adds what the judge of the turn found: how many wrong actions there were of each kind that was looked for.
func (s *Series) Judge(wrong map[string]int) error {
	var out strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(wrong)) {
		fmt.Fprintf(&out, "benchmark_wrong_actions{kind=%q} %d\n", kind, wrong[kind])
	}
	return os.WriteFile(filepath.Join(s.dir, "judge.prom"), []byte(out.String()), 0o644)
}

// kept are how the names of the series begin that are kept: all of them would be some megabytes a turn.
var kept = []string{
	"go_", "informer_", "leader_election_", "node_", "process_", "rest_client_requests_total", "stale_controller_", "workqueue_",
}

// keep writes the kept samples of a page.
func keep(path string, page []byte) error {
	var out bytes.Buffer
	for line := range bytes.Lines(page) {
		if slices.ContainsFunc(kept, func(prefix string) bool { return bytes.HasPrefix(line, []byte(prefix)) }) {
			out.Write(line)
		}
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("keeping scrapes: %w", err)
	}
	return nil
}
