// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
)

// Files of a folder of results. The first two are what the others are made from.
const (
	RunFile      = "run.json"
	SamplesFile  = "samples.jsonl"
	TableFile    = "README.md"
	BenchFile    = "bench.txt"
	PerfDataFile = "PerfData.json"
)

// WriteRun writes what the samples have in common.
func WriteRun(dir string, run sample.Run) error {
	data, err := json.MarshalIndent(run, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the run: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, RunFile), append(data, '\n'), 0o644)
}

// Read reads a folder.
func Read(dir string) (Results, error) {
	var r Results
	data, err := os.ReadFile(filepath.Join(dir, RunFile))
	if err != nil {
		return r, fmt.Errorf("reading results: %w", err)
	}
	if err := json.Unmarshal(data, &r.Run); err != nil {
		return r, fmt.Errorf("reading results: %s: %w", RunFile, err)
	}
	if err := json.Unmarshal(r.Run.Benchmarks, &r.Benchmarks); err != nil {
		return r, fmt.Errorf("reading results: %s: %w", RunFile, err)
	}
	if r.samples, err = sample.Read(filepath.Join(dir, SamplesFile)); err != nil {
		return r, err
	}
	if r.slos, err = readSLOs(dir); err != nil {
		return r, err
	}
	r.profiles, err = readProfiles(dir)
	return r, err
}

// Write writes a folder's table, benchmark format and PerfData, and returns the table.
func Write(dir string) (table string, err error) {
	r, err := Read(dir)
	if err != nil {
		return "", err
	}
	perf, err := r.PerfData()
	if err != nil {
		return "", err
	}
	table = r.Table()
	for name, content := range map[string]string{TableFile: "# Results: " + r.Run.Name + "\n\n" + table, BenchFile: r.BenchFormat(), PerfDataFile: string(perf)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return "", fmt.Errorf("writing results: %w", err)
		}
	}
	return table, nil
}

// Check returns an error that says how many goals of a folder were missed, nil if none.
func Check(dir string) error {
	r, err := Read(dir)
	if err != nil {
		return err
	}
	missed := 0
	all := r.Outcomes()
	for _, v := range all {
		if !v.Passed() {
			missed++
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d goals were missed", missed, len(all))
	}
	return nil
}
