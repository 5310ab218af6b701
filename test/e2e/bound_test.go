// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// The published age against the true one, which the proxy knows: the oldest event that waits in it is the
// oldest that the cache lacks. Never more than 1 s below it, at most the bound above.
const (
	belowTruth = time.Second
	aboveTruth = quietBound
	// handling is what the KCM is given to handle all that was held, which is handed to it at once in the end: on a machine
	// that is shared by six runs it took 1.1 s.
	handling = 2 * time.Second
	// sharedInformers is the client of the informers of built-in resources.
	sharedInformers = "shared-informers"
)

var (
	_ = describe(honest(ordinary, []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second}))
	_ = describe(honest(long, []time.Duration{120 * time.Second}))
)

// honest compares the published age with the one that the proxy knows.
//
//conformance:kep-5647 Motivation: how stale the cache of a controller is can be told
func honest(label string, faults []time.Duration) scenario {
	return scenario{
		number: 11, title: fmt.Sprintf("the published age is honest, holds and delays of %v", faults), label: label, gate: gates.MonitorInformerStaleness, mutants: ifOrdinary(label, without{"age", ruleDishonest}), gaps: []int{10},
		options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 20}}}, idle: true,
		timeout: 10 * time.Minute,
		run: func(ctx context.Context, r *run) {
			if r.Arm != rig.P {
				r.untold(ctx)
				return
			}
			stop := churn(ctx, r)
			defer stop()
			r.measured(ctx)
			busy := []schema.GroupResource{truth.Leases, truth.Pods}
			worst := &margins{truths: map[schema.GroupResource][]truthAt{}}
			for _, lasts := range faults {
				for _, effect := range []faultproxy.Effect{faultproxy.Hold{}, faultproxy.Delay{By: lasts}} {
					var injected []*faultproxy.Fault
					for _, resource := range busy {
						injected = append(injected, r.inject(informersOf(resource), effect))
					}
					during := lasts
					if _, delays := effect.(faultproxy.Delay); delays {
						during += 2 * stalenessPeriod // The events of the beginning are then there, late.
					}
					r.compare(ctx, during, worst, busy...)
					for _, fault := range injected {
						r.proves(fault, 2, 0)
						fault.Clear()
					}
					r.compare(ctx, stalenessPeriod+2*time.Second, worst, busy...)
					r.healed(ctx, busy...)
				}
			}
			r.figure("age less truth, least, most", "%.1fs, %.1fs", worst.least.Seconds(), worst.most.Seconds())
			gomega.Expect(worst.samples).To(gomega.BeNumerically(">", 100))
		},
	}
}

type margins struct {
	least, most time.Duration
	samples     int
	// truths are the ages that were true when samples were taken, as far back as one may still be handled.
	truths map[schema.GroupResource][]truthAt
}

type truthAt struct {
	age time.Duration
	at  time.Time
}

// lately returns the greatest age that was true no longer than handling before the page was made, now being one. A page
// is up to a second older than its answer, so it may tell of a time before the sample.
func (m *margins) lately(resource schema.GroupResource, now time.Duration, made time.Time) time.Duration {
	truths := slices.DeleteFunc(m.truths[resource], func(t truthAt) bool { return made.Sub(t.at) > handling })
	m.truths[resource] = append(truths, truthAt{now, time.Now()})
	return slices.MaxFunc(m.truths[resource], func(a, b truthAt) int { return cmp.Compare(a.age, b.age) }).age
}

// compare samples the page and the proxy for a while.
func (r *run) compare(ctx context.Context, lasts time.Duration, worst *margins, resources ...schema.GroupResource) {
	for end := time.Now().Add(lasts); time.Now().Before(end) && ctx.Err() == nil; {
		before := map[schema.GroupResource]time.Time{}
		for _, resource := range resources {
			before[resource] = r.Proxy.WaitingSince(resource, sharedInformers)
		}
		z := readStalenessz(ctx, r)
		for _, resource := range resources {
			var truth time.Duration
			if waits := before[resource]; !waits.IsZero() {
				truth = z.Time.Sub(waits)
			}
			lately := worst.lately(resource, truth, z.Time)
			c, _ := cacheOf(z, resource)
			if after := r.Proxy.WaitingSince(resource, sharedInformers); !after.Equal(before[resource]) || c.AgeSeconds == nil {
				if c.AgeSeconds == nil {
					r.violate(oracle.Violation{Oracle: "M", Rule: "no age", Object: resource.String(), Time: z.Time})
				}
				continue // The truth moved meanwhile.
			}
			published := time.Duration(*c.AgeSeconds * float64(time.Second))
			below, above := published-truth, published-lately
			worst.least, worst.most, worst.samples = min(worst.least, below), max(worst.most, above), worst.samples+1
			if below < -belowTruth || above > aboveTruth {
				r.violate(oracle.Violation{Oracle: "M", Rule: ruleDishonest, Object: resource.String(), Time: z.Time,
					Detail: fmt.Sprintf("published %.1fs (%s), in truth %.1fs", *c.AgeSeconds, c.State, truth.Seconds())})
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
