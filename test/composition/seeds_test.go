// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/report"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

const (
	// unitTime is for how long seeds are drawn, unless SEEDS says how many.
	unitTime = 40 * time.Second
	// shrinkRuns and shrinkTime bound the runs that make a failing history smaller.
	shrinkRuns = 60
	shrinkTime = 30 * time.Second
	// troublesLater is how much later the troubles of a failing history are once more.
	troublesLater = 3 * time.Second
	// enoughSeeds have healthy owners: every sixth history has some.
	enoughSeeds = 100
	// firstSeed of a run, unless FIRST is set.
	firstSeed = 1
)

// regressions has the histories that found something, each in a file that schedule.Load reads. A history is kept,
// and not its seed, so that it stays what it was when the drawing changes.
const regressions = "testdata/regressions"

// TestRegressions runs first what has once found something.
func TestRegressions(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(regressions, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s, err := schedule.Load(file)
			require.NoError(t, err)
			check(t, s, false)
		})
	}
}

// TestSeeds runs histories drawn from seeds: SEEDS of them from FIRST on, or as many as there is time for. A history
// that fails is made smaller and saved, or, with STOP=1, ends the run; REPLAY=file runs it again, and LOG=1 shows what the components log.
//
//conformance:kep-5647 Staleness Mitigation in Controllers: a Job waits for its own writes
func TestSeeds(t *testing.T) {
	if file := os.Getenv("REPLAY"); file != "" {
		s, err := schedule.Load(file)
		require.NoError(t, err)
		check(t, s, os.Getenv("LOG") != "")
		return
	}
	first, n := number(t, "FIRST", firstSeed), number(t, "SEEDS", 0)
	began, ran, failed := time.Now(), uint64(0), 0
	var tail validate.Tail
	for ; n > 0 && ran < n || n == 0 && time.Since(began) < unitTime; ran++ {
		s := schedule.Draw(first + ran)
		began := time.Now()
		found := violationsAnd(t, s, &tail)
		if testing.Verbose() {
			fmt.Printf("seed %d: %s in %s\n", s.Seed, s.End()+s.Settle, time.Since(began).Round(time.Millisecond))
		}
		if len(found) == 0 {
			continue
		}
		failed++
		fails(t, s, found)
		if os.Getenv("STOP") != "" {
			return
		}
		if failed > 2 {
			continue // The first few are made smaller.
		}
		smaller(t, s, found)
	}
	if ran >= enoughSeeds && !tail.Judged() {
		t.Errorf("in %d histories hardly an owner was healthy: their p99 says nothing", ran)
	}
	for _, v := range tail.Judge() {
		t.Errorf("all from seed %d to seed %d:\nworse: %s", first, first+ran-1, v)
	}
	t.Logf("%d seeds from %d in %s, %d failed\n%s", ran, first, time.Since(began).Round(time.Second), failed, &tail)
}

// fails reports what was found, and whether it is found with the history's troubles a little later, too: chance may have decided which work a trouble met.
func fails(t *testing.T, s schedule.Schedule, found []validate.Violation) {
	t.Helper()
	also := same(found, violations(t, s.Later(troublesLater)))
	t.Errorf("seed %d (and with its troubles %s later: %t):\n%s", s.Seed, troublesLater, also, report.Text(s, found))
}

// smaller saves what is left of a history that fails once it is made smaller.
func smaller(t *testing.T, s schedule.Schedule, found []validate.Violation) {
	t.Helper()
	until := time.Now().Add(shrinkTime)
	small := s.Shrink(shrinkRuns, func(s schedule.Schedule) bool {
		return time.Now().Before(until) && same(found, violations(t, s))
	})
	file := filepath.Join(os.TempDir(), fmt.Sprintf("composition-%s-%d.json", strings.ReplaceAll(t.Name(), "/", "-"), s.Seed))
	require.NoError(t, small.Save(file))
	t.Logf("smaller, in %s:\n%s", file, report.Text(small, nil))
}

// eachSeed judges what is drawn from so many seeds, from FIRST on, and with STOP=1 until one fails.
func eachSeed(t *testing.T, n uint64, draw func(seed uint64) schedule.Schedule) {
	t.Helper()
	first, failed := number(t, "FIRST", firstSeed), 0
	for seed := first; seed < first+n; seed++ {
		s := draw(seed)
		if found := violations(t, s); len(found) > 0 {
			fails(t, s, found)
			if failed++; os.Getenv("STOP") != "" {
				return
			}
			if failed <= 2 {
				smaller(t, s, found)
			}
		}
	}
	t.Logf("%d seeds from %d, %d failed", n, first, failed)
}

// same says that a rule is broken again that was broken before.
func same(before, now []validate.Violation) bool {
	for _, a := range before {
		for _, b := range now {
			if a.Rule == b.Rule {
				return true
			}
		}
	}
	return false
}

func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, name)
	return n
}

// check runs a schedule on both arms and fails if ours is worse.
func check(t *testing.T, s schedule.Schedule, verbose bool) {
	t.Helper()
	var log func(string)
	if verbose {
		log = func(line string) { fmt.Println(line) }
	}
	if verbose {
		stock, ours := run(t, arms.Stock, s, log), run(t, arms.Ours, s, log)
		fmt.Print(report.Text(s, validate.Compare(s, stock, ours)), report.Records(s, stock, ours))
	}
	if found := violations(t, s); len(found) > 0 {
		t.Errorf("%s", report.Text(s, found))
	}
}
