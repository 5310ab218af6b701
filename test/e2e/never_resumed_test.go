// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	neverResumedFor = 60 * time.Second
	// mostRelists is what client-go's backoff, from 0.8 to 30 s, and the monitor, which has a cache relist once a minute at
	// most, can come to in that time.
	mostRelists = 12

	ruleRelists = "more relists than backoff allows"
)

// For a minute no watch of pods and of nodes can be taken up: each is told that its version is gone, and the informer lists
// anew, again and again, with backoff. A cache is as old as its last list then, up to half a minute. A node is tainted, which a
// list shows, and the taint taken off. Every stock arm evicts the pods from a healthy node.
var _ = describe(scenario{
	number: 56, title: "no watch of pods and nodes can be resumed for 60 s: a NoExecute taint put on and taken off", label: long,
	incidents: []string{"etcd-20573"},
	hurts:     rig.U1, rules: []string{oracle.RuleUnjustified}, idle: true,
	options: rig.Options{KCMArgs: byLists, Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 2}}},
	timeout: 5 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.judges = append(r.judges, oracle.TaintEvictions)
		node := r.Cluster.Nodes().Names()[0]
		r.runPods(ctx, node, "victim", taintedPods, taintedToleration)
		if r.Arm == rig.P {
			r.measured(ctx)
		}
		both := []schema.GroupResource{truth.Pods, truth.Nodes}
		var faults []*faultproxy.Fault
		for _, resource := range both {
			faults = append(faults, r.inject(informersOf(resource), faultproxy.Gone{Resumed: true}))
		}
		began := faults[0].Stats().Since
		r.passes(ctx, "the lists to be far apart", began, 10*time.Second)
		listed := r.relists(truth.Nodes)
		r.taint(ctx, node, workload.Taint)
		r.eventually(ctx, "a list to show the taint", func() (bool, error) { return r.relists(truth.Nodes) > listed, nil })
		due := time.Now().Add(taintedToleration)
		r.untaintBefore(ctx, node, due)
		if r.Arm == rig.P {
			r.trueAges(ctx, time.Until(began.Add(neverResumedFor)), both...)
		}
		r.passes(ctx, "the fault to last", began, neverResumedFor)
		r.figure("pods deleted", "%d of %d", r.evicted("victim"), taintedPods)
		for i, resource := range both {
			relists := faults[i].Stats().Requests
			r.figure("watches of "+resource.Resource+" refused", "%d", relists)
			if relists > mostRelists {
				r.violate(oracle.Violation{Oracle: "N", Rule: ruleRelists, Object: resource.String(), Time: time.Now(), Detail: strconv.Itoa(relists)})
			}
			r.proves(faults[i], 3, neverResumedFor)
			faults[i].Clear()
		}
		r.told(ctx, truth.Nodes)
		r.evictsLater(ctx, node)
	},
})

// trueAges compares, for a while, the published ages with the truth: what a cache lacks is at least as old as it says.
func (r *run) trueAges(ctx context.Context, lasts time.Duration, resources ...schema.GroupResource) {
	ginkgo.GinkgoHelper()
	samples, lacked := 0, 0
	for end := time.Now().Add(lasts); time.Now().Before(end) && ctx.Err() == nil; {
		z := readStalenessz(ctx, r)
		for _, resource := range resources {
			c, ok := cacheOf(z, resource)
			if !ok || c.AgeSeconds == nil {
				continue
			}
			samples++
			has, err := strconv.ParseUint(c.StoreResourceVersion, 10, 64)
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			age := time.Duration(*c.AgeSeconds * float64(time.Second))
			for _, e := range r.Truth.Events(resource) {
				if e.RV <= has {
					continue
				}
				lacked++
				if truth := z.Time.Sub(e.Time); age < truth-belowTruth {
					r.violate(oracle.Violation{Oracle: "M", Rule: ruleDishonest, Object: resource.String(), Time: z.Time,
						Detail: fmt.Sprintf("published %v (%s), in truth %v", age, c.State, truth)})
				}
				break
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	r.figure("ages compared, of caches that lacked something", "%d, %d", samples, lacked)
	if lacked == 0 {
		r.unproven = append(r.unproven, "no cache with an age ever lacked anything")
	}
}
