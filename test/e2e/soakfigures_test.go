// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/leak"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

// stillLimit is how long a healed process may take until it has nothing under way: a short watch ends, and an idle
// connection is given up on.
const stillLimit = time.Minute

// sample waits until the process has no record of a write any more, has it collect its garbage, and counts what it has.
func (r *run) sample(ctx context.Context) (leak.Sample, error) {
	sample := leak.Sample{}
	// What is left in the end is a leak, which is found by the sample.
	if err := rig.Wait(ctx, stillLimit, "no record of a write to be left", func() (bool, error) {
		page, err := r.KCM.Get(ctx, "/metrics")
		return err == nil && sumOf(string(page), "stale_controller_recorded_objects") == 0, err
	}); err != nil && ctx.Err() != nil {
		return sample, err
	}
	// The second collection takes what finalizers of the first have let go.
	for range 2 {
		if _, err := r.KCM.Get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
			return sample, err
		}
	}
	body, err := r.KCM.Get(ctx, "/metrics")
	if err != nil {
		return sample, err
	}
	page := string(body)
	sample = leak.Sample{
		At: time.Now(), Goroutines: sumOf(page, "go_goroutines"), Heap: sumOf(page, "go_memstats_heap_alloc_bytes"),
		Records: sumOf(page, "stale_controller_recorded_objects"), Watches: float64(len(r.Proxy.Watches())), Series: ourSeries(page),
	}
	if sample.Goroutines == 0 || sample.Heap == 0 || sample.Watches == 0 || !strings.Contains(page, "\nstale_controller_recorded_objects ") {
		return sample, fmt.Errorf("nothing was measured: %+v", sample)
	}
	return sample, nil
}

// ourSeries counts the series of this project's metrics.
func ourSeries(page string) float64 {
	count := 0
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "stale_controller_") || strings.HasPrefix(line, "informer_staleness_") {
			count++
		}
	}
	return float64(count)
}

// progress is what is said every minute.
func (s *soak) progress() string {
	return fmt.Sprintf("soak: %s of %s, round %d, %d steps, %d of them faults, %d violations",
		time.Since(s.began).Round(time.Second), s.length.Round(time.Second), s.now.Load(), s.steps.Load(), s.faults.Load(), s.lastViolations.Load())
}

// sloMetrics begin the names of what build/monitoring/slos.yaml asks for: a tenth of what the process serves.
var sloMetrics = []string{
	"informer_staleness_seconds{", "informer_staleness_state{", "informer_staleness_handler_lag_seconds{",
	"stale_controller_waits_total{", "stale_controller_longest_wait_seconds{",
	"stale_controller_write_to_cache_duration_seconds_bucket{", "stale_controller_wait_duration_seconds_bucket{",
	"leader_election_master_status{", "process_start_time_seconds ",
}

// scrape keeps what hack/tools/slo needs of /metrics. One that is not answered is kept as an empty file.
func (s *soak) scrape(ctx context.Context) error {
	at := time.Now()
	body, err := s.KCM.Get(ctx, "/metrics")
	if ctx.Err() != nil {
		return nil
	}
	var kept strings.Builder
	if err == nil {
		for line := range strings.Lines(string(body)) {
			for _, prefix := range sloMetrics {
				if strings.HasPrefix(line, prefix) {
					kept.WriteString(line)
				}
			}
		}
	}
	return s.write(fmt.Sprintf("%d.prom", at.UnixMilli()), kept.String())
}

// writeJudge tells hack/tools/slo what went wrong, by oracle.
func (s *soak) writeJudge(violations []oracle.Violation) error {
	count := map[string]int{}
	for _, v := range violations {
		count[v.Oracle]++
	}
	var text strings.Builder
	for _, name := range []string{"S1", "S2", "S3"} {
		fmt.Fprintf(&text, "benchmark_wrong_actions{kind=%q} %d\n", name, count[name])
	}
	return s.write("judge.prom", text.String())
}

func (s *soak) write(name, text string) error {
	return s.keep("scrapes", name, []byte(text))
}

// keepHeap keeps what is on the heap after the round, for go tool pprof -diff_base.
func (s *soak) keepHeap(ctx context.Context) error {
	if s.out == "" {
		return nil
	}
	profile, err := s.KCM.Get(ctx, "/debug/pprof/heap")
	if err != nil {
		return err
	}
	return s.keep("heap", fmt.Sprintf("%03d.pprof", len(s.rounds)), profile)
}

func (s *soak) keep(folder, name string, content []byte) error {
	dir := filepath.Join(s.out, folder)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), content, 0o644)
}

// page is the soak's result. hack/test-soak.sh adds on what machine it was, and what the SLOs came to.
func (s *soak) page() string {
	var out strings.Builder
	result := "No wrong action, no leak, every end state reached."
	if len(s.wrong) > 0 {
		result = "- " + strings.Join(s.wrong, "\n- ")
	}
	fmt.Fprintf(&out, "%s\n\n%d rounds in %s, seed %d: %d steps, %d of them faults.\n\n", result,
		len(s.rounds), time.Since(s.began).Round(time.Second), s.seed, s.steps.Load(), s.faults.Load())
	out.WriteString("| Round | Seed | Ended after | Steps, faults | Healed after | Wrong | Goroutines | Heap after GC | Write records | Open watches |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for i, r := range s.rounds {
		fmt.Fprintf(&out, "| %d | %d | %s | %d, %d | %.1f s | %d | %.0f | %.1f MiB | %.0f | %.0f |\n", i+1, r.seed, r.sample.At.Sub(s.began).Round(time.Second),
			r.steps, r.faults, r.healed.Seconds(), len(r.violations), r.sample.Goroutines, r.sample.Heap/(1<<20), r.sample.Records, r.sample.Watches)
	}
	return out.String()
}
