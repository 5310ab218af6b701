// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

const (
	loadNodes = 100
	// loadQuiet is how long nothing is written after the last write of a load.
	loadQuiet = 2 * time.Second
	// loadNamesVariable chooses the loads of the benchmark by a part of their names.
	loadNamesVariable = "BENCH_LOADS"
)

// cost is what one load cost on one arm.
type cost struct {
	Load      string    `json:"load"`
	Contender contender `json:"contender"`
	Round     int       `json:"round"`
	// Seconds is the time until the last write of the kube-controller-manager.
	Seconds float64 `json:"seconds"`
	// CPU is its CPU time in seconds.
	CPU float64 `json:"cpu"`
	// Writes and Reads are requests in the load's namespace but events, of which there are as many as the limits of
	// the client let through.
	Writes int `json:"writes"`
	Reads  int `json:"reads"`
	Events int `json:"events"`
	Probes int `json:"probes"`
	// Proofs are the probes by resource.
	Proofs map[string]int `json:"proofs"`
	// Kinds are the writes and reads, as in "update deployments/status".
	Kinds map[string]int `json:"kinds"`
}

// calls are the writes and reads.
func (c cost) calls() int { return c.Writes + c.Reads }

var _ = ginkgo.Describe("Benchmark: cost of everyday loads without a fault", ginkgo.Serial, ginkgo.Label(benchmark, "bench:loads"), gates.StaleControllerConsistency(), func() {
	ginkgo.It("is that of stock, and with the monitor its probes besides", func(ctx context.Context) {
		rounds := 3
		if n, err := strconv.Atoi(os.Getenv(roundsVariable)); err == nil {
			rounds = n
		}
		arms := chosenArms(contenderU0, contenderU1, contenderQuiet, contenderP)
		loads := []load{deploymentLoad(40, 15), jobLoad(200, 2), daemonSetLoad(loadNodes, 10), cronJobLoad(200)}
		loads = slices.DeleteFunc(loads, func(l load) bool { return !strings.Contains(l.name, os.Getenv(loadNamesVariable)) })
		r := turns(ctx, controlplane.Options{Nodes: controlplane.NodeOptions{Count: loadNodes}})
		all := r.loadCosts(ctx, rounds, arms, loads)
		say(costTable(all))
		if path := os.Getenv(dataVariable); path != "" {
			data, err := json.MarshalIndent(all, "", "  ")
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			gomega.Expect(os.WriteFile(path, data, 0o644)).To(gomega.Succeed())
		}
	}, ginkgo.SpecTimeout(3*time.Hour))
})

// loadCosts has each arm do each load in each round, the arms in turns, and in every other round backwards.
func (r *run) loadCosts(ctx context.Context, rounds int, arms []contender, loads []load) (all []cost) {
	ginkgo.GinkgoHelper()
	turn := 0
	for round := range rounds {
		order := slices.Clone(arms)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, c := range order {
			turn++
			r.takesTurn(ctx, c, turn, "", func(name string) {
				for i, l := range loads {
					spent := r.costOf(ctx, l, fmt.Sprintf("%s-%d", name, i))
					spent.Contender, spent.Round = c, round
					fmt.Fprintf(ginkgo.GinkgoWriter, "%+v\n", spent)
					all = append(all, spent)
				}
			})
		}
	}
	return all
}

// costOf has the kube-controller-manager that runs now do a load in a new namespace, and removes that.
func (r *run) costOf(ctx context.Context, l load, namespace string) cost {
	ginkgo.GinkgoHelper()
	r.namespace(ctx, namespace, nil)
	began := time.Now()
	r.writesNothing(ctx, namespace, began, loadQuiet)
	began = time.Now()
	cpu := cpuSeconds(ctx, r)
	l.run(ctx, r, namespace)
	ended := r.writesNothing(ctx, namespace, began, loadQuiet)
	out := cost{Load: l.name, Seconds: ended.Sub(began).Seconds(), CPU: cpuSeconds(ctx, r) - cpu, Kinds: map[string]int{}, Proofs: map[string]int{}}
	events, err := r.Audit()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for request, n := range oracle.RequestsIn(events, began, ended.Add(time.Millisecond)) {
		switch {
		case request.Probe:
			out.Probes += n
			out.Proofs[request.Resource] += n
			continue
		case request.Namespace != namespace && !strings.HasPrefix(request.Namespace, namespace+"-"):
			continue // of nodes, for instance, and not of the load
		case request.Resource == "events":
			out.Events += n
			continue
		case request.Writes():
			out.Writes += n
		default:
			out.Reads += n
		}
		out.Kinds[request.Verb+" "+request.Resource] += n
	}
	if l.clean != nil {
		l.clean(ctx, r, namespace)
	}
	r.removeNamespaces(ctx, namespace)
	return out
}

// costTable shows the medians of each load and arm, and the kinds of requests of which they made different numbers.
func costTable(all []cost) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "\nload\tarm\tcalls, least and most\twrites\treads\tevents\tprobes\tCPU s\ttime s\n")
	for _, l := range distinct(all, func(c cost) string { return c.Load }) {
		for _, name := range distinct(all, func(c cost) contender { return c.Contender }) {
			of := selectCosts(all, l, name)
			if len(of) == 0 {
				continue
			}
			calls := valuesOf(of, func(c cost) float64 { return float64(c.calls()) })
			fmt.Fprintf(w, "%s\t%s\t%.0f (%.0f to %.0f)\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t%.1f\n", l, name, middle(calls), slices.Min(calls), slices.Max(calls),
				middle(valuesOf(of, func(c cost) float64 { return float64(c.Writes) })),
				middle(valuesOf(of, func(c cost) float64 { return float64(c.Reads) })),
				middle(valuesOf(of, func(c cost) float64 { return float64(c.Events) })),
				middle(valuesOf(of, func(c cost) float64 { return float64(c.Probes) })),
				middle(valuesOf(of, func(c cost) float64 { return c.CPU })),
				middle(valuesOf(of, func(c cost) float64 { return c.Seconds })))
		}
	}
	_ = w.Flush()
	for _, l := range distinct(all, func(c cost) string { return c.Load }) {
		fmt.Fprintf(&out, "\n%s, requests by kind:\n", l)
		w = tabwriter.NewWriter(&out, 0, 4, 2, ' ', 0)
		names := distinct(all, func(c cost) contender { return c.Contender })
		fmt.Fprintf(w, "kind\t%s\n", strings.Join(asStrings(names), "\t"))
		kinds := map[string]bool{}
		for _, c := range all {
			if c.Load == l {
				for kind := range c.Kinds {
					kinds[kind] = true
				}
			}
		}
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			fmt.Fprint(w, kind)
			for _, name := range names {
				fmt.Fprintf(w, "\t%.0f", middle(valuesOf(selectCosts(all, l, name), func(c cost) float64 { return float64(c.Kinds[kind]) })))
			}
			fmt.Fprintln(w)
		}
		_ = w.Flush()
	}
	return out.String()
}

func selectCosts(all []cost, load string, c contender) (out []cost) {
	for _, spent := range all {
		if spent.Load == load && spent.Contender == c {
			out = append(out, spent)
		}
	}
	return out
}

func valuesOf(all []cost, of func(cost) float64) (out []float64) {
	for _, c := range all {
		out = append(out, of(c))
	}
	return out
}

// middle is the median, or of an even number the mean of the two in the middle.
func middle(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// distinct returns the values in the order in which they come first.
func distinct[T comparable](all []cost, of func(cost) T) (out []T) {
	for _, c := range all {
		if v := of(c); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

func asStrings[T ~string](values []T) (out []string) {
	for _, v := range values {
		out = append(out, string(v))
	}
	return out
}
