// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// SLOFile has what hack/tools/slo found for each turn, one JSON value after the other. It may be missing.
const SLOFile = "slos.json"

// turnSLOs are the SLOs of one turn.
type turnSLOs struct {
	Turn string `json:"turn"`
	SLOs []slo  `json:"slos"`
}

// slo is what one SLO came to.
type slo struct {
	Name      string   `json:"slo"`
	Value     *float64 `json:"value"`
	Threshold float64  `json:"threshold"`
	Outcome   string   `json:"outcome"`
}

// outcomeFail is the outcome of an SLO that was missed.
const outcomeFail = "fail"

func readSLOs(dir string) (map[string][]slo, error) {
	f, err := os.Open(filepath.Join(dir, SLOFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading SLOs: %w", err)
	}
	defer f.Close()
	out := map[string][]slo{}
	for values := json.NewDecoder(f); ; {
		var t turnSLOs
		switch err := values.Decode(&t); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("reading SLOs: %s: %w", SLOFile, err)
		}
		out[t.Turn] = t.SLOs
	}
}

// sloTable shows for each arm in how many repetitions an SLO was met, and the worst value; not those without any data.
func (r Results) sloTable(out *strings.Builder, b spec.Benchmark) {
	var names []string
	for _, arm := range b.Arms {
		for _, s := range r.of(b.Name, arm) {
			for _, o := range r.slos[s.Turn()] {
				if !slices.Contains(names, o.Name) {
					names = append(names, o.Name)
				}
			}
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return !slices.ContainsFunc(b.Arms, func(arm controlplane.Arm) bool {
			return slices.ContainsFunc(r.outcomes(r.of(b.Name, arm), name), func(o slo) bool { return o.Value != nil })
		})
	})
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(out, "\n| SLO, worst repetition | Threshold")
	for _, arm := range b.Arms {
		fmt.Fprintf(out, " | %s", arm)
	}
	fmt.Fprintf(out, " |\n|---|---%s|\n", strings.Repeat("|---", len(b.Arms)))
	for _, name := range names {
		var cells []string
		threshold := 0.0
		for _, arm := range b.Arms {
			all := r.outcomes(r.of(b.Name, arm), name)
			cells = append(cells, sloCell(all))
			if len(all) > 0 {
				threshold = all[0].Threshold
			}
		}
		fmt.Fprintf(out, "| %s | %g | %s |\n", name, threshold, strings.Join(cells, " | "))
	}
}

// outcomes are those of one SLO in some samples.
func (r Results) outcomes(samples []sample.Sample, name string) (out []slo) {
	for _, s := range samples {
		for _, o := range r.slos[s.Turn()] {
			if o.Name == name {
				out = append(out, o)
			}
		}
	}
	return out
}

func sloCell(all []slo) string {
	failed, measured, worst := 0, 0, 0.0
	for _, o := range all {
		if o.Value == nil {
			continue
		}
		measured++
		worst = max(worst, *o.Value)
		if o.Outcome == outcomeFail {
			failed++
		}
	}
	switch {
	case measured == 0:
		return "no data"
	case failed > 0:
		return fmt.Sprintf("%.3g, **failed** in %d of %d", worst, failed, measured)
	}
	return fmt.Sprintf("%.3g, met in %d of %d", worst, measured, measured)
}
