// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const results = `commit: abc

Unit end-sec better=lower
BenchmarkJobs/nodes=3/arm=P 1 3 end-sec 8 x
BenchmarkJobs/nodes=3/arm=U0 1 1 end-sec 0 x
BenchmarkJobs/nodes=3/arm=U0 1 3 end-sec 0 x
BenchmarkOther/nodes=3/arm=U0 1 3 end-sec
`

func TestDraw(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.txt")
	if err := os.WriteFile(path, []byte(results), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := drawAll(path, []string{"end-sec", "x"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"jobs.svg": {"Jobs/nodes=3", "U0, n=2", "P, n=1", "end-sec"}, "jobs.png": {"PNG"}, "other.svg": {"Other/nodes=3"},
	} {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(path), name))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(string(data), w) {
				t.Errorf("%s does not contain %q", name, w)
			}
		}
		if strings.Contains(string(data), ">x<") {
			t.Errorf("%s shows a unit of which the first arm took nothing", name)
		}
	}
}

func TestMistake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.txt")
	if err := os.WriteFile(path, []byte("BenchmarkA x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := drawAll(path, []string{"end-sec"}); err == nil || !strings.Contains(err.Error(), "bench.txt:1") {
		t.Errorf("drawAll: %v", err)
	}
}
