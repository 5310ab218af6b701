// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

const (
	// benchmark is the label of what measures times. It belongs in no run of every change: other work on the
	// machine makes it mean nothing.
	benchmark = "benchmark"
	// roundsVariable is how often each arm has its turn, dataVariable a file for the raw data.
	roundsVariable = "BENCH_ROUNDS"
	dataVariable   = "BENCH_DATA"

	dyingNodes, clientQPS = 300, 20
	// slower is how much longer than U0 P may take; markedReads is how many live reads a minute there may be
	// once all nodes are marked: the goals of benchmark B6.
	slower      = 1.05
	markedReads = 12
)

// death is one measurement of B6.
type death struct {
	Arm   rig.Arm `json:"arm"`
	Round int     `json:"round"`
	// ToMark is from death until the last of the nodes was marked, Marking from the first mark to the last.
	ToMark, Marking time.Duration
	// Reads are live reads in the minute after.
	Reads int
}

// B6 with all nodes dying at once. The arms take turns, so that what else the machine does hits all of them.
var _ = ginkgo.Describe("Benchmark B6: all nodes die at a client rate of 20 requests a second", ginkgo.Label(benchmark, "bench:6"), ginkgo.Serial, func() {
	ginkgo.It("takes no longer to mark them than without protection, and needs no live reads afterwards", func(ctx context.Context) {
		rounds := 3
		if n, err := strconv.Atoi(os.Getenv(roundsVariable)); err == nil {
			rounds = n
		}
		var all []death
		for round := range rounds {
			for _, arm := range []rig.Arm{rig.U0, rig.U1, rig.P} {
				d := nodesDie(ctx, arm)
				d.Round = round
				all = append(all, d)
			}
		}
		say(deathTable(all))
		if path := os.Getenv(dataVariable); path != "" {
			data, err := json.MarshalIndent(all, "", "  ")
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			gomega.Expect(os.WriteFile(path, data, 0o644)).To(gomega.Succeed())
		}
		toMark := func(d death) time.Duration { return d.ToMark }
		gomega.Expect(median(all, rig.P, toMark)).To(gomega.BeNumerically("<=", slower*float64(median(all, rig.U0, toMark))))
		for _, d := range all {
			if d.Arm == rig.P {
				gomega.Expect(d.Reads).To(gomega.BeNumerically("<=", markedReads))
			}
		}
		gomega.Expect(median(all, rig.U1, func(d death) int { return d.Reads })).To(gomega.BeNumerically(">", 10*markedReads), "U1 shows what is measured (V)")
	}, ginkgo.SpecTimeout(time.Hour))
})

// nodesDie measures one arm once.
func nodesDie(ctx context.Context, arm rig.Arm) death {
	ginkgo.GinkgoHelper()
	options := shortTiming.rig(controlplane.NodeOptions{Count: dyingNodes}, fmt.Sprintf("--kube-api-qps=%d", clientQPS))
	options.Arm = arm
	fixture, err := rig.Start(ctx, options)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r := &run{Rig: fixture}
	defer func() { gomega.Expect(r.Stop(ctx)).To(gomega.Succeed()) }()
	r.nodesKnown(ctx)
	gomega.Expect(r.Cluster.Nodes().KillAll()).To(gomega.Succeed())
	died := time.Now()
	last := r.allMarked(ctx, r.Cluster.Nodes().Names(), 5*time.Minute)
	first := last
	for _, at := range oracle.FirstMarked(r.Truth) {
		if at.Before(first) {
			first = at
		}
	}
	settled := last.Add(passPeriod)
	r.passes(ctx, "the reads to be counted", settled, time.Minute)
	gomega.Expect(r.SameKCM(ctx)).To(gomega.Succeed())
	events, err := r.Audit()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return death{
		Arm: arm, ToMark: last.Sub(died), Marking: last.Sub(first),
		Reads: len(oracle.ReadsIn(events, settled, settled.Add(time.Minute)).Live),
	}
}

func median[T ~int | ~int64](all []death, arm rig.Arm, of func(death) T) T {
	var values []T
	for _, d := range all {
		if d.Arm == arm {
			values = append(values, of(d))
		}
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func deathTable(all []death) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "\nB6, %d nodes\nround\tarm\tall marked after\tfirst to last mark\tlive reads in the minute after\n", dyingNodes)
	for _, d := range all {
		fmt.Fprintf(w, "%d\t%s\t%.1f s\t%.1f s\t%d\n", d.Round, d.Arm, d.ToMark.Seconds(), d.Marking.Seconds(), d.Reads)
	}
	_ = w.Flush()
	return out.String()
}
