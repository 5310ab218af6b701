// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

const (
	// shortGrace takes the place of upstream's 50 s in the ordinary run; nodes renew their leases four times
	// as often.
	shortGrace = 20 * time.Second
	// defaultGrace is upstream's, and so is the lease that goes with it.
	defaultGrace = 50 * time.Second
	defaultLease = 40 * time.Second
	// passPeriod is how long node lifecycle rests between two passes over the nodes.
	passPeriod = 5 * time.Second
	// markSlack is for the writing of marks, 20 a second, and for what else the machine has to do.
	markSlack = 4 * time.Second
	// liveReadBudget is how many live reads there may be in any minute, whatever the number of nodes.
	liveReadBudget = 30

	ruleBudget   = "live reads over the budget"
	ruleLate     = "dead node marked late"
	ruleUnmarked = "dead node not marked"
)

// nodeTiming is how soon a silent node is to be marked.
type nodeTiming struct{ grace, lease time.Duration }

var (
	// quickTiming is for clusters in which the nodes' renewals are no load to speak of.
	quickTiming   = nodeTiming{10 * time.Second, 8 * time.Second}
	shortTiming   = nodeTiming{shortGrace, shortGrace}
	defaultTiming = nodeTiming{defaultGrace, defaultLease}
)

// renewal is how often nodes renew their leases.
func (t nodeTiming) renewal() time.Duration { return t.lease / 4 }

// overGrace is how long a fault lasts that is to do harm: the grace period and the passes that notice it.
func (t nodeTiming) overGrace() time.Duration { return t.grace + 2*passPeriod }

// bound is how soon after a node's last sign of life it must be marked: grace and two passes.
func (t nodeTiming) bound() time.Duration { return t.grace + 2*passPeriod + markSlack }

// rig describes a cluster of this timing, with what the oracles about nodes need.
func (t nodeTiming) rig(nodes controlplane.NodeOptions, args ...string) rig.Options {
	return rig.Options{
		KCMArgs: append([]string{"--node-monitor-grace-period=" + t.grace.String()}, args...),
		Record:  []schema.GroupResource{truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions, truth.Leases},
		Cluster: controlplane.Options{Nodes: nodes, NodeLeaseDuration: t.lease},
	}
}

// nodesKnown waits until the KCM has been through all nodes and has their leases.
func (r *run) nodesKnown(ctx context.Context) {
	ginkgo.GinkgoHelper()
	count := len(r.Cluster.Nodes().Names())
	r.nodesCounted(ctx, count)
	r.eventually(ctx, "a lease of every node", func() (bool, error) {
		return len(r.Truth.At(truth.Leases, truth.Latest)) >= count, nil
	})
	r.told(ctx, truth.Leases)
	r.told(ctx, truth.Nodes)
}

// passes waits for a time that is part of the scenario: that a fault lasts, or that nothing happens in.
func (r *run) passes(ctx context.Context, what string, from time.Time, d time.Duration) {
	ginkgo.GinkgoHelper()
	gomega.Expect(rig.Wait(ctx, d+patience, what, func() (bool, error) { return time.Since(from) >= d, nil })).To(gomega.Succeed())
}

// kill makes nodes die and waits until each has been silent for longer than the time between two renewals,
// and the KCM has been told of all that they did.
func (r *run) kill(ctx context.Context, timing nodeTiming, nodes ...string) {
	ginkgo.GinkgoHelper()
	r.killNow(ctx, timing, nodes...)
	told := time.Now()
	r.eventually(ctx, "the nodes to be silent", func() (bool, error) {
		last := oracle.LastSign(r.Truth)
		var missed []string
		silent := true
		for _, n := range nodes {
			silent = silent && time.Since(last[n]) > timing.renewal()*5/4
			if last[n].Sub(told) > timing.renewal()*3/2 {
				missed = append(missed, n)
			}
		}
		if len(missed) == 0 {
			return silent, nil
		}
		// kwok misses the end of a node that it is just acting on, and goes on renewing its lease. Such a node
		// is alive, and has to be told again.
		ginkgo.GinkgoWriter.Println("still alive, killed again:", missed)
		told = time.Now()
		return false, errors.Join(r.Cluster.Nodes().Revive(ctx, missed...), r.Cluster.Nodes().Kill(ctx, missed...))
	})
	r.told(ctx, truth.Leases)
}

// killNow makes nodes die.
func (r *run) killNow(ctx context.Context, timing nodeTiming, nodes ...string) {
	ginkgo.GinkgoHelper()
	gomega.Expect(r.Cluster.Nodes().Kill(ctx, nodes...)).To(gomega.Succeed())
	r.deaths.Grace = timing.grace
	r.deaths.Nodes = r.deaths.Nodes.Union(sets.New(nodes...))
}

// marked waits until nodes are marked, each within the bound since its last sign of life or since a time at
// which that could be known first, whichever is later; what exceeds it by another bound is stuck.
func (r *run) marked(ctx context.Context, what string, timing nodeTiming, known time.Time, nodes ...string) {
	ginkgo.GinkgoHelper()
	limit := timing.bound() + max(0, time.Until(known))
	// Who was not marked is judged below.
	_ = rig.Wait(ctx, 2*limit, what, func() (bool, error) {
		_, n := r.marksOf(nodes)
		return n == len(nodes), nil
	})
	marks := oracle.FirstMarked(r.Truth)
	_, n := r.marksOf(nodes)
	last := oracle.LastSign(r.Truth)
	var slowest time.Duration
	for _, node := range nodes {
		at, ok := marks[node]
		violation := oracle.Violation{Oracle: "L", Object: node, Time: at}
		since := last[node]
		if known.After(since) {
			since = known
		}
		if !ok {
			violation.Rule, violation.Time = ruleUnmarked, time.Now()
			violation.Detail = fmt.Sprintf("it could be known for %v", rounded(time.Since(since)))
			r.violate(violation)
			continue
		}
		slowest = max(slowest, at.Sub(since))
		if at.Sub(since) > timing.bound() {
			violation.Rule, violation.Detail = ruleLate, fmt.Sprintf("%v after it could be known, %v allowed", rounded(at.Sub(since)), timing.bound())
			r.violate(violation)
		}
	}
	r.figure(what+" marked, slowest after", "%d of %d, %v", n, len(nodes), rounded(slowest))
}

// late judges that every silent node was marked in time, whatever was held meanwhile.
func (r *run) late(ctx context.Context, timing nodeTiming) {
	ginkgo.GinkgoHelper()
	gomega.Expect(r.Truth.Sync(ctx)).To(gomega.Succeed())
	writes, err := r.Writes()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	bound := timing.bound() + oracle.Lag(r.Truth, writes)
	late := oracle.Late(r.Truth, bound, time.Now())
	r.figure("dead nodes shown Ready for longer than", "%v: %d", rounded(bound), len(late))
	r.violate(late...)
}

// marksOf counts the nodes among these that were marked, and returns when the last one was.
func (r *run) marksOf(nodes []string) (last time.Time, n int) {
	marks := oracle.FirstMarked(r.Truth)
	for _, node := range nodes {
		if at, ok := marks[node]; ok {
			n++
			if at.After(last) {
				last = at
			}
		}
	}
	return last, n
}

// living returns the nodes that were not killed.
func (r *run) living() []string {
	return slices.DeleteFunc(r.Cluster.Nodes().Names(), r.deaths.Nodes.Has)
}

// lived is V for the nodes that nobody killed: most were alive all the time, so that it would have been wrong to mark them. One that
// kwok had no time for may have been silent for as long as a dead one; S2 judges each by that from then on.
func (r *run) lived(timing nodeTiming, from, to time.Time, nodes ...string) {
	r.deaths.Grace = timing.grace
	var widest time.Duration
	silent := 0
	for _, d := range oracle.Silences(r.Truth, from, to, nodes...) {
		widest = max(widest, d)
		if d >= timing.grace {
			silent++
		}
	}
	r.figure("V widest silence of the living", "%v", rounded(widest))
	if 2*silent >= len(nodes) {
		r.unproven = append(r.unproven, fmt.Sprintf("%d of %d nodes were silent for %v, so they were not alive", silent, len(nodes), timing.grace))
	}
}

// budgeted is G: no minute since then saw more live reads than the budget allows.
func (r *run) budgeted(what string, from, to time.Time) {
	ginkgo.GinkgoHelper()
	r.budgetedTo(what, from, to, liveReadBudget)
}

func (r *run) budgetedTo(what string, from, to time.Time, budget int) {
	ginkgo.GinkgoHelper()
	events, err := r.Audit()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	reads := oracle.ReadsIn(events, from, to)
	live := oracle.Busiest(reads.Live, time.Minute)
	r.figure("G live reads, most in a minute: "+what, "%d, %d", len(reads.Live), live)
	r.figure("G probes, most in a minute: "+what, "%d, %d", len(reads.Probes), oracle.Busiest(reads.Probes, time.Minute))
	if live > budget {
		r.violate(oracle.Violation{
			Oracle: "G", Rule: ruleBudget, Object: what, Time: to, Detail: fmt.Sprintf("%d live reads in a minute, %d allowed", live, budget),
		})
	}
}

// allReady returns nil if these nodes are Ready and not tainted for not being so.
func (r *run) allReady(nodes ...string) func() error {
	return func() error { return oracle.NodesReady(r.Truth, nodes...) }
}

// leases is what selects the watches of leases.
var leases = faultproxy.Target{Resource: truth.Leases}
