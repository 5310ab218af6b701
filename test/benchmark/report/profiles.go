// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/profile"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// ProfilesFile has the differences of the arms' CPU profiles. It is missing if no profile was kept.
const ProfilesFile = "profiles.json"

const (
	// keptRows is how many rows of a difference are kept.
	keptRows = 10
	// leastDifference is what a row must differ by in all turns to be shown, in seconds: two samples at 100 a second.
	leastDifference = 0.02
)

// profileDifference is what P takes more than another arm in a benchmark.
type profileDifference struct {
	Benchmark string           `json:"benchmark"`
	Against   controlplane.Arm `json:"against"`
	// Turns are how many profiles P and the other arm have.
	Turns        int `json:"turns"`
	TurnsAgainst int `json:"turnsAgainst"`
	profile.Difference
}

// CompareProfiles merges the CPU profiles that the turns of a run left in raw into one for each benchmark and arm, beside
// them, and keeps in dir what P takes more than the other arms.
func CompareProfiles(dir, raw string) error {
	r, err := Read(dir)
	if err != nil {
		return err
	}
	var out []profileDifference
	for _, b := range r.Benchmarks {
		merged, turns := map[controlplane.Arm]*pprof.Profile{}, map[controlplane.Arm]int{}
		for _, arm := range b.Arms {
			var files []string
			for _, s := range r.of(b.Name, arm) {
				files = append(files, filepath.Join(raw, s.Turn()+profile.Extension))
			}
			if len(files) == 0 {
				continue
			}
			if merged[arm], err = profile.Merge(files...); err != nil {
				return err
			}
			turns[arm] = len(files)
			if err := profile.Write(merged[arm], filepath.Join(raw, b.Name+"-"+string(arm)+profile.Extension)); err != nil {
				return err
			}
		}
		for _, against := range []controlplane.Arm{controlplane.ArmU1, controlplane.ArmU0} {
			if merged[controlplane.ArmP] == nil || merged[against] == nil {
				continue
			}
			d := profileDifference{Benchmark: b.Name, Against: against, Turns: turns[controlplane.ArmP], TurnsAgainst: turns[against]}
			d.Difference, err = profile.Compare(merged[against], turns[against], merged[controlplane.ArmP], turns[controlplane.ArmP], keptRows)
			if err != nil {
				return fmt.Errorf("%s: %w", b.Name, err)
			}
			out = append(out, d)
		}
	}
	data, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return fmt.Errorf("keeping the differences of profiles: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, ProfilesFile), append(data, '\n'), 0o644)
}

func readProfiles(dir string) (out []profileDifference, err error) {
	data, err := os.ReadFile(filepath.Join(dir, ProfilesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading profiles: %w", err)
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("reading profiles: %s: %w", ProfilesFile, err)
	}
	return out, nil
}

// profileTables show where P takes more CPU time, or less, than another arm.
func (r Results) profileTables(out *strings.Builder, b spec.Benchmark) {
	seconds := sample.Figure{Kind: sample.Seconds}
	for _, d := range r.profiles {
		if d.Benchmark != b.Name {
			continue
		}
		fmt.Fprintf(out, "\nCPU profiles of the first 10 s of a turn, P (n=%d) beside %s (n=%d): %s and %s a turn. A sample is 10 ms, so differences of a few say little.",
			d.Turns, d.Against, d.TurnsAgainst, seconds.Format(d.Of), seconds.Format(d.Base))
		shown := 0
		for _, part := range []struct {
			title string
			rows  []profile.Row
		}{{"Package of this project, with what it calls", d.Packages}, {"Function, by itself", d.Functions}} {
			rows := slices.DeleteFunc(slices.Clone(part.rows), func(row profile.Row) bool {
				return max(row.Of-row.Base, row.Base-row.Of) < leastDifference/float64(max(d.Turns, 1))
			})
			if len(rows) == 0 {
				continue
			}
			shown++
			fmt.Fprintf(out, "\n\n| %s | %s | P | more |\n|---|---|---|---|", part.title, d.Against)
			for _, row := range rows {
				fmt.Fprintf(out, "\n| `%s` | %s | %s | %s |", row.Name, seconds.Format(row.Base), seconds.Format(row.Of), seconds.Format(row.Of-row.Base))
			}
		}
		if shown == 0 {
			fmt.Fprintf(out, " No function differs by two samples of the profiler.")
		}
		fmt.Fprintln(out)
	}
}
