// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// Options are what to run, and how.
type Options struct {
	Benchmarks []spec.Benchmark
	// Budget is how long all may take: no round is begun that would not end in it by the length of those before. Zero
	// means any time.
	Budget time.Duration
	// Raw is a folder for scrapes and profiles.
	Raw string
	// Profile keeps a CPU profile of kube-controller-manager for each turn.
	Profile bool
	// Binary is the kube-controller-manager of P, if it is another than the one that was built.
	Binary string
	// Progress is told what is going on, from one goroutine. May be nil.
	Progress func(Progress)
	// Record takes each sample as it comes. An error ends the run.
	Record func(sample.Sample) error
}

// Progress is what is going on at one moment.
type Progress struct {
	// Done of Turns turns have ended; fewer than Turns are made if the budget ends before.
	Done, Turns int
	// Turn is the one that runs, What what it does now.
	Turn, What string
}

// Outcome says what became of a run.
type Outcome struct {
	// Stopped says why rounds are missing; empty if none are.
	Stopped string
	// Versions are those of the components.
	Versions map[string]string
}

// Run runs all. When it returns every process is gone.
func Run(ctx context.Context, options Options) (Outcome, error) {
	r := &runner{Options: options, outcome: Outcome{Versions: map[string]string{}}}
	if r.Progress == nil {
		r.Progress = func(Progress) {}
	}
	for _, b := range options.Benchmarks {
		r.progress.Turns += b.Repeats * len(b.Arms)
	}
	groups := byCluster(options.Benchmarks)
	for _, group := range groups {
		if slices.ContainsFunc(group, warmsUp) {
			r.progress.Turns++
		}
	}
	began := time.Now()
	for i, group := range groups {
		deadline := time.Time{}
		if options.Budget > 0 {
			// Each of the clusters to come gets the same share of what is left.
			left := options.Budget - time.Since(began)
			deadline = time.Now().Add(left / time.Duration(len(groups)-i))
		}
		if err := r.group(ctx, group, deadline); err != nil {
			return r.outcome, err
		}
	}
	return r.outcome, nil
}

// byCluster puts benchmarks together that can share a cluster, in the order in which they come.
func byCluster(all []spec.Benchmark) (groups [][]spec.Benchmark) {
	for _, b := range all {
		i := slices.IndexFunc(groups, func(g []spec.Benchmark) bool {
			return g[0].Nodes == b.Nodes && g[0].Lease == b.Lease && g[0].LeaseGenerator == b.LeaseGenerator && handsOver(g[0]) == handsOver(b)
		})
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], b)
	}
	return groups
}

// handsOver says whether a benchmark needs a second apiserver that can lag.
func handsOver(b spec.Benchmark) bool { return b.Workload.Handover != nil }

// runner is one run.
type runner struct {
	Options
	outcome  Outcome
	progress Progress
	number   int
}

func (r *runner) say(format string, args ...any) {
	r.progress.What = fmt.Sprintf(format, args...)
	r.Progress(r.progress)
}

// group runs the benchmarks of one cluster, round after round.
func (r *runner) group(ctx context.Context, group []spec.Benchmark, deadline time.Time) (err error) {
	r.progress.Turn = fmt.Sprintf("cluster of %d nodes", group[0].Nodes)
	r.say("starting")
	s, err := startSession(ctx, group[0], r.Binary)
	if err != nil {
		return err
	}
	defer func() {
		r.say("stopping the cluster")
		if err != nil && ctx.Err() == nil {
			s.cluster.Keep()
			err = fmt.Errorf("%w\nthe cluster's files are kept in %s", err, s.cluster.Dir())
		}
		err = errors.Join(err, s.stop(context.WithoutCancel(ctx)))
	}()
	if i := slices.IndexFunc(group, warmsUp); i >= 0 {
		if err := r.turn(ctx, s, group[i], group[i].Arms[0], 0); err != nil {
			return err
		}
	}
	r.versions(ctx, s, group)
	took := map[string]time.Duration{}
	for round := 1; ; round++ {
		left := slices.DeleteFunc(slices.Clone(group), func(b spec.Benchmark) bool { return round > b.Repeats })
		if len(left) == 0 {
			return nil
		}
		var next time.Duration
		for _, b := range left {
			next += took[b.Name]
		}
		if round > 1 && !deadline.IsZero() && time.Now().Add(next+stopReserve).After(deadline) {
			r.outcome.Stopped = fmt.Sprintf("round %d of %d nodes, of %v, would not have ended within the budget", round, group[0].Nodes, next.Round(time.Second))
			return nil
		}
		for _, b := range left {
			began := time.Now()
			for _, arm := range order(b.Arms, round) {
				if err := r.turn(ctx, s, b, arm, round); err != nil {
					return err
				}
			}
			took[b.Name] = time.Since(began)
		}
	}
}

// warmsUp says whether a benchmark has enough to do that the cluster is better warmed up with it: its first turn of all
// finds an apiserver and an etcd that have not worked yet, and does not count.
func warmsUp(b spec.Benchmark) bool { return b.Workload.NodesDie == nil && !b.Endless() }

// stopReserve is for the end of a cluster.
const stopReserve = 10 * time.Second

// order is that of the arms in a round: every other round goes backwards.
func order(arms []controlplane.Arm, round int) []controlplane.Arm {
	arms = slices.Clone(arms)
	if round%2 == 0 {
		slices.Reverse(arms)
	}
	return arms
}

// versions notes what the binaries say of themselves.
func (r *runner) versions(ctx context.Context, s *session, group []spec.Benchmark) {
	for _, c := range s.cluster.Components(ctx) {
		if !strings.HasPrefix(c.Name, turnPrefix) {
			r.outcome.Versions[c.Name] = c.Version
		}
	}
	for _, b := range group {
		for _, arm := range b.Arms {
			r.outcome.Versions["kube-controller-manager of "+string(arm)] = s.version(ctx, arm)
		}
	}
}
