// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// turn is one arm's turn at a benchmark: what it had to do and what that cost.
type turn struct {
	arm string
	// nodes is the size of the cluster.
	nodes int
	// has is the amount of each variable, by its name; cost the amount of each quantity.
	has, cost map[string]float64
}

// replicated are objects of some pods each.
type replicated struct{ Count, Replicas int }

// benchmark is what counts here of a declared benchmark.
type benchmark struct {
	Name     string          `json:"name"`
	Nodes    int             `json:"nodes"`
	Lease    string          `json:"lease"`
	Fault    json.RawMessage `json:"fault"`
	Workload struct {
		Deployments  *replicated                `json:"deployments"`
		StatefulSets *replicated                `json:"statefulSets"`
		Jobs         *struct{ Count, Pods int } `json:"jobs"`
		DaemonSet    *struct{}                  `json:"daemonSet"`
		NodesDie     *struct{}                  `json:"nodesDie"`
		Handover     *struct{}                  `json:"handover"`
		Stalls       *struct{}                  `json:"stalls"`
	} `json:"workload"`
}

// pods is how many the workload makes.
func (b benchmark) pods() int {
	switch w := b.Workload; {
	case w.Deployments != nil:
		return w.Deployments.Count * w.Deployments.Replicas
	case w.StatefulSets != nil:
		return w.StatefulSets.Count * w.StatefulSets.Replicas
	case w.Jobs != nil:
		return w.Jobs.Count * w.Jobs.Pods
	case w.DaemonSet != nil:
		return b.Nodes
	}
	return 0
}

// upstreamLease is the kubelet's lease duration.
const upstreamLease = 40 * time.Second

// renewals is how many leases are renewed a second.
func (b benchmark) renewals() (float64, error) {
	lease := upstreamLease
	if b.Lease != "" && b.Lease != "0s" {
		var err error
		if lease, err = time.ParseDuration(b.Lease); err != nil {
			return 0, err
		}
	}
	return renewals(b.Nodes, lease), nil
}

// renewals of so many leases a second: each is renewed four times in its duration.
func renewals(nodes int, lease time.Duration) float64 { return float64(nodes) * 4 / lease.Seconds() }

// read returns the turns of a folder that count.
func read(folder string) ([]turn, error) {
	data, err := os.ReadFile(filepath.Join(folder, "run.json"))
	if err != nil {
		return nil, err
	}
	var run struct {
		Benchmarks []benchmark `json:"benchmarks"`
	}
	if err := json.Unmarshal(data, &run); err != nil {
		return nil, fmt.Errorf("%s: run.json: %w", folder, err)
	}
	samples, err := os.Open(filepath.Join(folder, "samples.jsonl"))
	if err != nil {
		return nil, err
	}
	defer samples.Close()
	var out []turn
	for lines := json.NewDecoder(samples); ; {
		var s struct {
			Benchmark, Arm    string
			Warmup            bool
			Seconds           float64
			Figures, KCMCalls map[string]float64
		}
		switch err := lines.Decode(&s); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("%s: samples.jsonl: %w", folder, err)
		}
		i := slices.IndexFunc(run.Benchmarks, func(b benchmark) bool { return b.Name == s.Benchmark })
		if i < 0 {
			return nil, fmt.Errorf("%s: run.json does not have the benchmark %q of samples.jsonl", folder, s.Benchmark)
		}
		b := run.Benchmarks[i]
		if s.Warmup || len(b.Fault) > 0 || b.Workload.NodesDie != nil || b.Workload.Handover != nil || b.Workload.Stalls != nil || s.Seconds <= 0 {
			continue
		}
		renewed, err := b.renewals()
		if err != nil {
			return nil, fmt.Errorf("%s: %s: lease: %w", folder, b.Name, err)
		}
		out = append(out, turn{
			arm: s.Arm, nodes: b.Nodes,
			has: map[string]float64{
				nodes: float64(b.Nodes), pods: float64(b.pods()), leases: renewed,
				writes: s.Figures["kcm-writes"] / s.Seconds, caches: s.Figures["kcm-caches"],
				looks: float64(b.Nodes) * s.KCMCalls["update daemonsets/status"] / s.Seconds,
			},
			cost: map[string]float64{
				requests: s.Figures["api-calls"] / s.Seconds, cpu: s.Figures["kcm-cpu-sec"] / s.Seconds,
				memory: s.Figures["kcm-rss-B"] / (1 << 20),
			},
		})
	}
}

// sizesOf returns the sizes of cluster that there are turns of.
func sizesOf(all []turn) (out []int) {
	for _, t := range all {
		out = append(out, t.nodes)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
