// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/kubernetes/test/e2e/perftype"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
)

// BenchFormat writes a line for each sample, and the machine before them, in the format that benchstat reads:
// "benchstat -col /arm bench.txt" compares the arms.
func (r Results) BenchFormat() string {
	var out strings.Builder
	fmt.Fprintf(&out, "commit: %s\ncpu: %s\ncores: %d\n\n", r.Run.Commit, r.Run.Machine.CPU, r.Run.Machine.Cores)
	for _, f := range sample.Figures {
		fmt.Fprintf(&out, "Unit %s better=lower\n", f.Name)
	}
	for _, b := range r.Benchmarks {
		fmt.Fprintln(&out)
		for _, s := range r.samples {
			if s.Benchmark != b.Name || s.Warmup {
				continue
			}
			fmt.Fprintf(&out, "Benchmark%s/nodes=%d/qps=%d/arm=%s 1", camel(b.Name), b.Nodes, b.QPS, s.Arm)
			for _, f := range sample.Figures {
				if v, ok := s.Figures[f.Name]; ok {
					fmt.Fprintf(&out, " %s %s", strconv.FormatFloat(v, 'f', -1, 64), f.Name)
				}
			}
			fmt.Fprintln(&out)
		}
	}
	return out.String()
}

// camel makes DaemonsetCreate of daemonset-create: the format wants a capital letter.
func camel(name string) string {
	var out strings.Builder
	for part := range strings.SplitSeq(name, "-") {
		letters := []rune(part)
		letters[0] = unicode.ToUpper(letters[0])
		out.WriteString(string(letters))
	}
	return out.String()
}

// perfUnits are the units of PerfData by kind.
var perfUnits = map[sample.Kind]string{sample.Seconds: "s", sample.Bytes: "B", sample.Count: "1"}

// PerfData makes the JSON that perfdash reads: an item for each benchmark, arm and figure, with quantiles of its samples.
func (r Results) PerfData() ([]byte, error) {
	data := perftype.PerfData{Version: "v1", DataItems: []perftype.DataItem{}, Labels: map[string]string{"commit": r.Run.Commit, "run": r.Run.Name}}
	for _, b := range r.Benchmarks {
		for _, arm := range b.Arms {
			for _, f := range sample.Figures {
				values := slices.Sorted(slices.Values(r.Values(b.Name, arm, f.Name)))
				if len(values) == 0 {
					continue
				}
				data.DataItems = append(data.DataItems, perftype.DataItem{
					Data:   map[string]float64{"Perc50": Values(values).Median(), "Min": values[0], "Max": values[len(values)-1]},
					Unit:   perfUnits[f.Kind],
					Labels: map[string]string{"Benchmark": b.Name, "Arm": string(arm), "Metric": f.Name, "Nodes": strconv.Itoa(b.Nodes), "QPS": strconv.Itoa(b.QPS)},
				})
			}
		}
	}
	out, err := json.MarshalIndent(data, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing PerfData: %w", err)
	}
	return append(out, '\n'), nil
}
