// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Names of the figures. They serve as units in Go's benchmark format, so that benchstat knows seconds and bytes by them.
const (
	End       = "end-sec"
	DetectP50 = "detect-p50-sec"
	DetectP99 = "detect-p99-sec"

	FirstRight = "first-right-sec"

	BusyP50     = "notice-busy-p50-sec"
	BusyP99     = "notice-busy-p99-sec"
	QuietP50    = "notice-quiet-p50-sec"
	QuietP99    = "notice-quiet-p99-sec"
	FalseAlarms = "false-alarms"

	Wrong = "wrong-actions"

	KCMWrites = "kcm-writes"
	KCMReads  = "kcm-reads"
	KCMEvents = "kcm-events"
	KCMProbes = "kcm-probes"
	LiveReads = "live-reads/min"
	APICalls  = "api-calls"

	KCMCPU       = "kcm-cpu-sec"
	APIServerCPU = "apiserver-cpu-sec"
	EtcdCPU      = "etcd-cpu-sec"
	KCMRSS       = "kcm-rss-B"
	APIServerRSS = "apiserver-rss-B"
	EtcdRSS      = "etcd-rss-B"
	KCMHeap      = "kcm-heap-B"
	KCMAllocated = "kcm-alloc-B"
	KCMAllocs    = "kcm-allocs"

	QueueDepth = "queue-depth"
	QueueP50   = "queue-p50-sec"
	QueueP99   = "queue-p99-sec"
	HandlerLag = "handler-lag-sec"

	// Pace is how fast the machine was before the turn.
	Pace = "pace-sec"

	// Caches is how many caches the monitor of P watches. It is kept with the figures, but is none: others depend on it.
	Caches = "kcm-caches"
)

// Kind is what a figure counts.
type Kind string

// The kinds of figures.
const (
	Seconds Kind = "s"
	Bytes   Kind = "B"
	Count   Kind = ""
)

// Figure says what a name means. Of every figure less is better.
type Figure struct {
	Name  string
	Title string
	Kind  Kind
	// Optional figures are not there in each turn, so no goal may be about them.
	Optional bool
	// Spread and Slack say by how much the medians of two runs of one build on one machine differ at most: by this part of the larger one, and besides by this. A figure without
	// either is left to chance: wrong actions, and waits of a few microseconds.
	Spread, Slack float64
}

// Figures are all there are, in the order in which tables show them.
var Figures = []Figure{
	{Name: End, Title: "time to the end state", Kind: Seconds, Spread: 0.25, Slack: 0.2},
	{Name: DetectP50, Title: "dead node marked, p50", Kind: Seconds, Slack: 5},
	{Name: DetectP99, Title: "dead node marked, p99", Kind: Seconds, Slack: 5},
	{Name: FirstRight, Title: "successor's first write after all wrong ones", Kind: Seconds, Spread: 0.1, Slack: 0.2},
	{Name: BusyP50, Title: "stalled watch of a busy resource noticed, p50", Kind: Seconds},
	{Name: BusyP99, Title: "stalled watch of a busy resource noticed, p99", Kind: Seconds},
	{Name: QuietP50, Title: "stalled watch of a quiet resource noticed, p50", Kind: Seconds},
	{Name: QuietP99, Title: "stalled watch of a quiet resource noticed, p99", Kind: Seconds},
	{Name: FalseAlarms, Title: "caches called stale by mistake"},
	{Name: Wrong, Title: "wrong actions"},
	{Name: KCMWrites, Title: "writes of kube-controller-manager", Spread: 0.2, Slack: 20},
	{Name: KCMReads, Title: "reads of kube-controller-manager", Slack: 30},
	{Name: KCMEvents, Title: "events that it reported", Spread: 0.1, Slack: 5},
	{Name: KCMProbes, Title: "probes of its caches", Slack: 10},
	{Name: LiveReads, Title: "live reads a minute", Spread: 0.5, Slack: 2},
	{Name: APICalls, Title: "requests to the apiserver, all clients", Spread: 0.15, Slack: 20},
	{Name: KCMCPU, Title: "CPU of kube-controller-manager", Kind: Seconds, Spread: 0.4, Slack: 0.1},
	{Name: APIServerCPU, Title: "CPU of kube-apiserver", Kind: Seconds, Spread: 0.4, Slack: 0.1},
	{Name: EtcdCPU, Title: "CPU of etcd", Kind: Seconds, Spread: 0.4, Slack: 0.1},
	{Name: KCMRSS, Title: "peak RSS of kube-controller-manager", Kind: Bytes, Spread: 0.1},
	{Name: APIServerRSS, Title: "peak RSS of kube-apiserver", Kind: Bytes, Spread: 0.1},
	{Name: EtcdRSS, Title: "peak RSS of etcd", Kind: Bytes, Spread: 0.1},
	{Name: KCMHeap, Title: "heap of kube-controller-manager", Kind: Bytes, Spread: 0.25},
	{Name: KCMAllocated, Title: "memory that it allocated", Kind: Bytes, Spread: 0.4},
	{Name: KCMAllocs, Title: "allocations", Spread: 0.4},
	{Name: QueueDepth, Title: "deepest work queue"},
	{Name: QueueP50, Title: "wait in work queues, p50", Kind: Seconds},
	{Name: QueueP99, Title: "wait in work queues, p99", Kind: Seconds},
	{Name: HandlerLag, Title: "largest lag of an event handler", Kind: Seconds, Optional: true},
	{Name: Pace, Title: "a fixed piece of work before the turn", Kind: Seconds, Optional: true, Spread: 0.1},
}

// Find returns the figure of a name.
func Find(name string) (Figure, bool) {
	i := slices.IndexFunc(Figures, func(f Figure) bool { return f.Name == name })
	if i < 0 {
		return Figure{}, false
	}
	return Figures[i], true
}

// Format shows a value with its unit: 1.24 s, 35 ms, 180 MiB, 1203.
func (f Figure) Format(value float64) string {
	switch f.Kind {
	case Seconds:
		switch {
		case value != 0 && math.Abs(value) < 1e-3:
			return digits(value*1e6) + " µs"
		case value != 0 && math.Abs(value) < 1:
			return digits(value*1e3) + " ms"
		}
		return digits(value) + " s"
	case Bytes:
		return digits(value/(1<<20)) + " MiB"
	}
	if value >= 1e6 {
		return digits(value/1e6) + " M"
	}
	if value == math.Trunc(value) {
		return fmt.Sprintf("%.0f", value)
	}
	return digits(value)
}

// digits shows three significant digits, or the whole number if it has more.
func digits(value float64) string {
	if math.Abs(value) >= 100 {
		return fmt.Sprintf("%.0f", value)
	}
	shown, err := strconv.ParseFloat(strconv.FormatFloat(value, 'g', 3, 64), 64)
	if err != nil {
		return fmt.Sprint(value)
	}
	return strconv.FormatFloat(shown, 'f', -1, 64)
}
