// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shipped are the rules that operators get.
const shipped = "../../../build/monitoring/slos.yaml"

// began is when the process of the made-up scrapes began.
var began = time.UnixMilli(1_700_000_000_000)

// leading is what every scrape of a leader has.
func leading(lines ...string) string {
	return strings.Join(append(lines,
		fmt.Sprintf("process_start_time_seconds %d", began.Unix()),
		`leader_election_master_status{name="kube-controller-manager"} 1`,
		`stale_controller_waits_total{controller="daemonset",group="",resource="pods"} 0`, ""), "\n")
}

func age(resource string, seconds float64) string {
	return fmt.Sprintf(`informer_staleness_seconds{group="",version="v1",resource=%q} %g`, resource, seconds)
}

// writes is the histogram of write-to-cache latencies after so many writes, each of which took less than 5 ms or 5 to 10 s.
func writes(fast, slow int) string {
	const bucket = "stale_controller_write_to_cache_duration_seconds_bucket{controller=\"daemonset\",group=\"\",resource=\"pods\",le=%q} %d\n"
	return fmt.Sprintf(bucket+bucket+bucket+bucket, "0.005", fast, "5", fast, "10", fast+slow, "+Inf", fast+slow)
}

// run writes a folder with a scrape each 5 s for two minutes.
func run(t *testing.T, scrape func(i int) string) string {
	t.Helper()
	dir := t.TempDir()
	for i := range 25 {
		at := began.Add(time.Duration(i) * 5 * time.Second)
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.prom", at.UnixMilli())), []byte(scrape(i)), 0o600))
	}
	return dir
}

func TestOutcomes(t *testing.T) {
	for name, tc := range map[string]struct {
		scrape func(i int) string
		judge  string
		want   map[string]outcome // no data, unless named
	}{
		"all is well": {
			scrape: func(i int) string {
				return leading(age("pods", 13.3), writes(10*i, 0), `informer_staleness_handler_lag_seconds{group="",version="v1",resource="pods",handler="daemon"} 0`,
					`stale_controller_longest_wait_seconds{waiting="object"} 0.1`, `stale_controller_longest_wait_seconds{waiting="action"} 0`)
			},
			judge: `benchmark_wrong_actions{kind="S1"} 0`,
			want: map[string]outcome{"cache_age_seconds": pass, "write_to_cache_seconds": pass, "handler_lag_seconds": pass,
				"owner_wait_seconds": pass, "action_wait_seconds": pass, "wrong_actions": pass},
		},
		"all goes wrong": {
			scrape: func(i int) string {
				return leading(age("pods", float64(5*i)), writes(0, 10*i), `informer_staleness_handler_lag_seconds{group="",version="v1",resource="pods",handler="daemon"} 2`,
					`stale_controller_longest_wait_seconds{waiting="object"} 30`, `stale_controller_longest_wait_seconds{waiting="action"} 6`)
			},
			judge: "benchmark_wrong_actions{kind=\"S1\"} 0\nbenchmark_wrong_actions{kind=\"S2\"} 2",
			want: map[string]outcome{"cache_age_seconds": fail, "write_to_cache_seconds": fail, "handler_lag_seconds": fail,
				"owner_wait_seconds": fail, "action_wait_seconds": fail, "wrong_actions": fail},
		},
		"an arm without these metrics, judged": {
			scrape: func(int) string { return "workqueue_depth{name=\"daemonset\"} 0\n" },
			judge:  `benchmark_wrong_actions{kind="S1"} 30`,
			want:   map[string]outcome{"wrong_actions": fail},
		},
		"no write, no wait": {
			scrape: func(int) string { return leading(age("pods", 5), writes(0, 0)) },
			want:   map[string]outcome{"cache_age_seconds": pass},
		},
		"an old cache that no protected controller reads": {
			scrape: func(int) string { return leading(age("pods", 5), age("secrets", 300)) },
			want:   map[string]outcome{"cache_age_seconds": pass},
		},
		"the first minute does not count": {
			scrape: func(i int) string { return leading(age("pods", map[bool]float64{true: 100, false: 5}[i < 12])) },
			want:   map[string]outcome{"cache_age_seconds": pass},
		},
		"a cache of which nothing is known": {
			scrape: func(int) string {
				return leading(`informer_staleness_state{group="",version="v1",resource="pods",state="unknown"} 1`)
			},
			want: map[string]outcome{"cache_age_seconds": fail},
		},
		"a process that is gone has no age": {
			scrape: func(i int) string {
				if i > 10 {
					return ""
				}
				return leading(age("pods", 100))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := run(t, tc.scrape)
			if tc.judge != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, judgeFile), []byte(tc.judge+"\n"), 0o600))
			}
			folder, err := readFolder(dir)
			require.NoError(t, err)
			results, err := evaluate(t.Context(), shipped, folder, io.Discard)
			require.NoError(t, err)
			got, want := map[string]outcome{}, map[string]outcome{}
			for _, r := range results {
				got[r.SLO] = r.Outcome
				want[r.SLO] = noData
				require.Equal(t, r.Outcome == noData, r.Value == nil, r.SLO)
			}
			require.Len(t, results, 6)
			maps.Copy(want, tc.want)
			require.Equal(t, want, got)
		})
	}
}

func TestCommand(t *testing.T) {
	good := run(t, func(int) string { return leading(age("pods", 12)) })
	bad := run(t, func(int) string { return leading(age("pods", 40)) })
	broken := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(broken, "1.prom"), []byte("not a metric at all\n"), 0o600))
	norules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(norules, []byte("groups:\n- name: a\n  rules:\n  - record: b\n    expr: vector(\n"), 0o600))
	for name, tc := range map[string]struct {
		args  []string
		out   string
		wrong string
	}{
		"pass":            {[]string{"-rules", shipped, "-scrapes", good}, "cache_age_seconds       12     15         pass\n", ""},
		"fail":            {[]string{"-rules", shipped, "-scrapes", bad}, "cache_age_seconds       40     15         fail\n", "an SLO is missed"},
		"JSON":            {[]string{"-json", "-rules", shipped, "-scrapes", bad}, `"outcome": "fail"`, "an SLO is missed"},
		"no folder":       {[]string{"-rules", shipped, "-scrapes", good + "/none"}, "", "no such file"},
		"empty folder":    {[]string{"-rules", shipped, "-scrapes", t.TempDir()}, "", "has no file UNIX_MILLIS.prom"},
		"broken scrape":   {[]string{"-rules", shipped, "-scrapes", broken}, "", "1.prom"},
		"no rules":        {[]string{"-rules", shipped + ".none", "-scrapes", good}, "", "no such file"},
		"broken rules":    {[]string{"-rules", norules, "-scrapes", good}, "", "reading rules"},
		"nothing to do":   {nil, "", "usage:"},
		"too much to do":  {[]string{"-rules", shipped, "-scrapes", good, bad}, "", "usage:"},
		"an unknown flag": {[]string{"-rule", shipped}, "", "not defined"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := command(t.Context(), tc.args, &out, io.Discard)
			require.Contains(t, out.String(), tc.out)
			if tc.wrong == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.wrong)
		})
	}
}
