// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/stalledwatch"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

const (
	// noticeBusy and noticeQuiet are how soon a watch that brings nothing must be noticed.
	noticeBusy  = 10 * time.Second
	noticeQuiet = 20 * time.Second
	halfOpens   = 6
)

var namespaces = schema.GroupResource{Resource: "namespaces"}

// A watch stays open and brings nothing. Stock says nothing of it; what the arms do about it is the subject of
// the other scenario 11.
var _ = describe(scenario{
	number: 11, title: "half-open watch: pings answered, no bytes; noticed", label: ordinary, gate: gates.MonitorInformerStaleness, mutants: []without{{"detection", ruleUnnoticed}}, gaps: []int{11},
	incidents: []string{"gardener-15708"},
	options:   rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 20}}}, idle: true,
	timeout: 12 * time.Minute,
	run: func(ctx context.Context, r *run) {
		if r.Arm != rig.P {
			r.figure("noticed", "never")
			r.untold(ctx)
			return
		}
		stop := churn(ctx, r)
		defer stop()
		r.measured(ctx)
		var took []time.Duration
		for i := range halfOpens {
			resource := []schema.GroupResource{truth.Leases, truth.Pods}[i%2]
			effect := []faultproxy.Effect{faultproxy.Hold{}, faultproxy.StopReading{}}[i/2%2]
			// The fault comes at any time between two probes.
			time.Sleep(rand.N(5 * time.Second))
			fault := r.inject(informersOf(resource), effect)
			took = append(took, r.noticed(ctx, resource, fault.Stats().Since, noticeBusy))
			if i == 0 {
				r.toldEverywhere(ctx, resource)
			}
			fault.Clear()
			r.healed(ctx, resource)
			if fault.Stats().Streams == 0 {
				r.unproven = append(r.unproven, "no stream was half open")
			}
		}
		slices.Sort(took)
		r.figure("busy: noticed after, median, most", "%.1fs, %.1fs", took[len(took)/2].Seconds(), took[len(took)-1].Seconds())

		// One that protected controllers read, and one that they do not.
		replicaSets := schema.GroupResource{Group: "apps", Resource: "replicasets"}
		objects, quiet := makeKinds(ctx, r, func(k stalledwatch.Kind) bool {
			return slices.Contains([]schema.GroupResource{replicaSets, namespaces}, k.Resource.GroupResource())
		})
		r.healed(ctx, replicaSets, namespaces)
		for _, k := range quiet {
			resource := k.Resource.GroupResource()
			limit := r.noticeLimit(ctx, resource)
			fault := r.inject(informersOf(resource), faultproxy.Hold{})
			gomega.Expect(objects.Touch(ctx, k, "quiet no more")).To(gomega.Succeed())
			r.figure("quiet "+resource.Resource+": noticed after, at most", "%.1fs, %.0fs", r.noticed(ctx, resource, time.Now(), limit).Seconds(), limit.Seconds())
			r.proves(fault, 1, 0)
			fault.Clear()
			r.healed(ctx, resource)
		}
	},
})

// noticeLimit is how soon a stalled watch of a quiet resource must be noticed, by what the page says of it.
func (r *run) noticeLimit(ctx context.Context, resource schema.GroupResource) time.Duration {
	ginkgo.GinkgoHelper()
	c, ok := cacheOf(readStalenessz(ctx, r), resource)
	gomega.Expect(ok).To(gomega.BeTrue(), resource.String())
	if c.Protected {
		return noticeQuiet
	}
	return noticeQuiet + time.Duration(c.AskedEverySeconds*float64(time.Second))
}

// untold notes that an arm has no page that says how old its caches are.
func (r *run) untold(ctx context.Context) {
	if _, err := r.KCM.Get(ctx, stalenessz.Path); err != nil {
		r.violate(oracle.Violation{Oracle: "M", Rule: "nothing tells the age of a cache", Object: stalenessz.Path, Time: time.Now(), Detail: err.Error()})
	}
}

const (
	// freshAgain is how soon after its watch was held the cache of a busy resource must be fresh.
	freshAgain = 20 * time.Second
	// heldOn is how long an arm that does nothing about it is watched.
	heldOn = time.Minute

	ruleBehind = "cache stays behind a held watch"
)

// One watch stream is held, as by a connection that has come to grief on the way: new ones are not. Stock has what is
// held when the server ends the stream, after 5 to 10 min.
var _ = describe(scenario{
	number: 11, title: "one watch stream held; ended and opened again", label: ordinary, gate: gates.MonitorInformerStaleness, mutants: []without{{"watch-end", ruleBehind}}, gaps: []int{11},
	incidents: []string{"gardener-15708"},
	hurts:     rig.U1, rules: []string{ruleBehind},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 20}}}, idle: true,
	timeout: 6 * time.Minute,
	run: func(ctx context.Context, r *run) {
		stop := churn(ctx, r)
		defer stop()
		if r.Arm == rig.P {
			r.measured(ctx)
		}
		for _, resource := range []schema.GroupResource{truth.Leases, truth.Pods} {
			target := informersOf(resource)
			target.Running = true
			fault := r.inject(target, faultproxy.Hold{})
			since := fault.Stats().Since
			var first time.Time
			r.eventually(ctx, "an event to be held", func() (bool, error) {
				first = r.Proxy.WaitingSince(resource, sharedInformers)
				return !first.IsZero(), nil
			})
			err := rig.Wait(ctx, heldOn, "the cache to be handed it", func() (bool, error) {
				at := r.Proxy.WaitingSince(resource, sharedInformers)
				return at.IsZero() || at.After(first), nil
			})
			took := time.Since(since)
			r.figure(resource.Resource+": handed after", "%.1fs", took.Seconds())
			if err != nil || took > freshAgain {
				r.violate(oracle.Violation{Oracle: "L", Rule: ruleBehind, Object: resource.String(), Time: time.Now(), Detail: fmt.Sprintf("%v; %v", took, err)})
			}
			if r.Arm == rig.P {
				r.healed(ctx, resource)
				r.figure(resource.Resource+": fresh after", "%.1fs", time.Since(since).Seconds())
				if took := time.Since(since); took > freshAgain {
					r.violate(oracle.Violation{Oracle: "M", Rule: ruleBehind, Object: resource.String(), Time: time.Now(), Detail: took.String()})
				}
				opened, listed := r.takenUp(since, resource)
				ended := series(ctx, r, "informer_staleness_ended_watches_total", fmt.Sprintf("resource=%q", resource.Resource))
				r.figure(resource.Resource+": ended, opened, listed", "%.0f, %d, %d", ended, opened, listed)
				gomega.Expect([]int{int(ended), opened, listed}).To(gomega.Equal([]int{1, 1, 0}), "one watch is ended, one is taken up, and nothing is listed")
			}
			fault.Clear()
		}
		if r.Arm != rig.P {
			return
		}
		// New watches are held, too: an apiserver is not flooded with them, and the second end in a row costs one list.
		fault := r.inject(informersOf(truth.Pods), faultproxy.Hold{})
		since := fault.Stats().Since
		r.passes(ctx, "the fault to last", since, heldOn)
		opened, listed := r.takenUp(since, truth.Pods)
		r.figure("held on: opened, listed", "%d, %d", opened, listed)
		gomega.Expect(opened).To(gomega.And(gomega.BeNumerically(">=", 1), gomega.BeNumerically("<=", 2)), "in a minute")
		gomega.Expect(listed).To(gomega.BeNumerically("<=", 1), "in a minute")
		fault.Clear()
		r.healed(ctx, truth.Pods)
	},
})

// takenUp counts the watches of a resource that informers have opened since a time, and their lists.
func (r *run) takenUp(since time.Time, resource schema.GroupResource) (opened, listed int) {
	ginkgo.GinkgoHelper()
	events, err := r.Audit()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for i := range events {
		e := &events[i]
		if !isSharedInformer(e, resource) || e.RequestReceivedTimestamp.Before(since) {
			continue
		}
		switch {
		case fillsAnew(e):
			listed++
		case e.Verb == "watch" && e.Stage == "ResponseStarted":
			opened++
		}
	}
	return opened, listed
}

// toldEverywhere: the metric and the log say it, too.
func (r *run) toldEverywhere(ctx context.Context, resource schema.GroupResource) {
	metrics := page(ctx, r.KCM, "/metrics") // One scrape: between two a cache that lags may stall.
	is := func(state string) float64 {
		return sumOf(metrics, "informer_staleness_state", fmt.Sprintf("resource=%q", resource.Resource), fmt.Sprintf("state=%q", state))
	}
	gomega.Expect(is("lagging")+is("stalled")).To(gomega.BeEquivalentTo(1), "metric")
	log, err := os.ReadFile(r.KCM.LogPath())
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(slices.ContainsFunc(strings.Split(string(log), "\n"), func(line string) bool {
		return strings.Contains(line, "not proven complete") && strings.Contains(line, resource.Resource) && strings.Contains(line, "lagWatch=")
	})).To(gomega.BeTrue(), "log")
}
