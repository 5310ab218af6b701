// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// folder makes one of a small run that never was.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	zero := 0.0
	jobs := spec.Benchmark{
		Name: "jobs", Title: "2 Jobs", Nodes: 3, QPS: 100, Repeats: 2, Arms: []controlplane.Arm{"U1", "P"},
		Goals: []spec.Goal{
			{Figure: sample.Wrong, Of: "P", AtMost: &zero},
			{Figure: sample.End, Of: "P", Against: "U1", Percent: 5},
			{Figure: sample.KCMReads, Of: "P", Against: "U1", Percent: 5, Extra: 5},
		},
	}
	die := jobs
	die.Name, die.ID, die.Title = "nodes-die", "B6", "all nodes die"
	die.Goals = []spec.Goal{{Figure: sample.Wrong, Of: "P", AtMost: &zero}}
	benchmarks, err := json.Marshal([]spec.Benchmark{jobs, die})
	require.NoError(t, err)
	require.NoError(t, WriteRun(dir, sample.Run{
		Name: "example", Began: time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC), Took: 90 * time.Second, Command: "staleness-lab bench example",
		Commit: "abc", Versions: map[string]string{"etcd": "3", "go": "go1"}, Machine: sample.Machine{CPU: "Example CPU", Cores: 2, Memory: 4 << 30, Kernel: "Linux 6", Load: 0.5},
		Stopped: "round 3 would not have ended", Benchmarks: benchmarks,
	}))
	add := func(arm controlplane.Arm, round int, end, rss, wrong float64, calls map[string]int) {
		s := sample.Sample{
			Benchmark: "jobs", Arm: arm, Round: round, Warmup: round == 0, Seconds: end + 2, KCMCalls: calls, APICalls: calls,
			Figures: map[string]float64{sample.End: end, sample.KCMRSS: rss, sample.Wrong: wrong, sample.KCMReads: 3, sample.QueueP99: 0.0123},
		}
		if wrong > 0 {
			s.Wrong = map[string]int{"S3 status behind own pods": int(wrong)}
		}
		require.NoError(t, sample.Append(filepath.Join(dir, SamplesFile), s))
	}
	add("U1", 0, 1000, 1, 9, nil)
	add("U1", 1, 10, 100<<20, 2, map[string]int{"create pods": 4, "get jobs": 3})
	add("P", 1, 11, 110<<20, 0, map[string]int{"create pods": 4, "get jobs": 1})
	add("P", 2, 12.3, 120<<20, 0, map[string]int{"create pods": 4, "get jobs": 1, "list pods": 1})
	add("U1", 2, 12, 100<<20, 0, map[string]int{"create pods": 4, "get jobs": 3})
	require.NoError(t, os.WriteFile(filepath.Join(dir, SLOFile), []byte(`{"turn":"jobs-P-1","slos":[
  {"slo":"cache_age_seconds","value":12.3456,"threshold":15,"outcome":"pass"},{"slo":"owner_wait_seconds","threshold":5,"outcome":"no data"},{"slo":"wrong_actions","value":0,"threshold":0,"outcome":"pass"}]}
{"turn":"jobs-P-2","slos":[{"slo":"cache_age_seconds","value":16,"threshold":15,"outcome":"fail"}]}
{"turn":"jobs-U1-0","slos":[{"slo":"wrong_actions","value":9,"threshold":0,"outcome":"fail"}]}
{"turn":"jobs-U1-1","slos":[{"slo":"cache_age_seconds","threshold":15,"outcome":"no data"},{"slo":"wrong_actions","value":2,"threshold":0,"outcome":"fail"}]}
`), 0o644))
	return dir
}

// TestFormats compares with the files of testdata; UPDATE=1 writes them.
func TestFormats(t *testing.T) {
	dir := folder(t)
	table, err := Write(dir)
	require.NoError(t, err)
	for _, name := range []string{TableFile, BenchFile, PerfDataFile} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		golden := filepath.Join("testdata", name)
		if os.Getenv("UPDATE") != "" {
			require.NoError(t, os.WriteFile(golden, got, 0o644))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s; UPDATE=1 writes it", golden)
	}
	require.Contains(t, table, "**missed**")
	require.EqualError(t, Check(dir), "2 of 4 goals were missed")
}

func TestOutcomes(t *testing.T) {
	r, err := Read(folder(t))
	require.NoError(t, err)
	var passed []bool
	for _, v := range r.Outcomes() {
		passed = append(passed, v.Passed())
	}
	require.Equal(t, []bool{true, false, true, false}, passed, "a median of 11.65 is more than 11.55, and nothing measured is no success")
	require.Equal(t, 11.0, r.Values("jobs", "U1", sample.End).Median(), "without the warm-up")
	r.samples[3].Figures[sample.End] = 12.1
	require.True(t, r.Outcomes()[1].Passed(), "11.55")
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values Values
		want   float64
	}{{nil, 0}, {Values{3}, 3}, {Values{9, 1}, 5}, {Values{9, 1, 2}, 2}} {
		require.Equal(t, test.want, test.values.Median(), "%v", test.values)
	}
}

func TestMistakes(t *testing.T) {
	dir := folder(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, SamplesFile), []byte("{}\nx\n"), 0o644))
	_, err := Write(dir)
	require.ErrorContains(t, err, "samples.jsonl:2: ")
	require.NoError(t, os.WriteFile(filepath.Join(dir, SamplesFile), nil, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, SLOFile), []byte("{"), 0o644))
	_, err = Write(dir)
	require.ErrorContains(t, err, "slos.json: ")
	require.NoError(t, os.Remove(filepath.Join(dir, RunFile)))
	require.ErrorContains(t, Check(dir), "run.json")
}

func TestPage(t *testing.T) {
	root := t.TempDir()
	const text = "above\n" + pageBegin + "old" + pageEnd + "\nbelow\n" + modelBegin + modelEnd
	const noModel = "No model yet: it takes kept results of three sizes of cluster.\n"
	page, err := Page(text, root, "../results")
	require.NoError(t, err)
	require.Equal(t, "above\n"+pageBegin+"\n\nNo run has been kept yet.\n\n"+pageEnd+"\nbelow\n"+modelBegin+"\n"+noModel+"\n"+modelEnd, page)
	require.NoError(t, os.WriteFile(filepath.Join(root, ModelFile), []byte("costs\n"), 0o644))
	require.NoError(t, os.Rename(folder(t), filepath.Join(root, "example")))
	require.NoError(t, os.WriteFile(filepath.Join(root, "example", "nodesdie.svg"), nil, 0o644))
	page, err = Page(page, root, "../results")
	require.NoError(t, err)
	require.Contains(t, page, "\n### example\n\nMeasured on 2001-02-03")
	require.Contains(t, page, "](../results/example/nodesdie.svg)")
	require.NotContains(t, page, "jobs.svg")
	require.Contains(t, page, modelBegin+"\ncosts\n")
	again, err := Page(page, root, "../results")
	require.NoError(t, err)
	require.Equal(t, page, again)
	_, err = Page("no marks", root, "")
	require.ErrorContains(t, err, "lacks the marks")
}

// The page of this repository has the results that are kept. UPDATE=1 writes it.
func TestDocs(t *testing.T) {
	path := filepath.Join("..", "..", "..", "docs", "benchmarks.md")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	want, err := Page(string(text), filepath.Join("..", "results"), "../test/benchmark/results")
	require.NoError(t, err)
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	require.Equal(t, strings.Split(want, "\n"), strings.Split(string(text), "\n"), "docs/benchmarks.md; UPDATE=1 writes it")
}
