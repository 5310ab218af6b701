// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/stalledwatch"
)

const (
	// noticeSamples is how many watches are held, at least, if that is noticed soon.
	noticeSamples = 100
	// noticeEvery is how often the page is looked at.
	noticeEvery = 200 * time.Millisecond
)

// How soon a held watch is noticed, of many resources at once, each at a random moment of its period: p99 of at
// least a hundred busy ones. The figures are those of B8.
var (
	_ = describe(noticing("busy", noticeBusy, func(k stalledwatch.Kind) bool { return k.Busy }))
	_ = describe(noticing("quiet", noticeQuiet, func(k stalledwatch.Kind) bool { return !k.Busy }))
)

func noticing(name string, bound time.Duration, chosen func(stalledwatch.Kind) bool) scenario {
	return scenario{
		number: 11, title: "p99 of the time to notice a held watch, " + name + " resources", label: long, gate: gates.MonitorInformerStaleness,
		options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 20}}}, idle: true,
		timeout: 15 * time.Minute,
		run: func(ctx context.Context, r *run) {
			if r.Arm != rig.P {
				r.untold(ctx)
				return
			}
			objects, resources := makeKinds(ctx, r, chosen)
			stop := objects.KeepBusy(ctx)
			defer stop()
			r.measured(ctx)
			// Of a quiet cache that no protected controller reads the page says when it is asked about.
			byLimit := map[time.Duration][]time.Duration{}
			limits := map[schema.GroupVersionResource]time.Duration{}
			longest := bound
			for _, k := range resources {
				limits[k.Resource] = bound
				if !k.Busy {
					limits[k.Resource] = r.noticeLimit(ctx, k.Resource.GroupResource()).Round(10 * time.Second)
				}
				longest = max(longest, limits[k.Resource])
			}
			rounds := noticeSamples/len(resources) + 1
			if longest > bound {
				rounds = 1 // It takes minutes.
			}
			for range rounds {
				took, err := objects.Hold(ctx, r.KCM, r.Proxy.Inject, 2*longest)
				gomega.Expect(err).NotTo(gomega.HaveOccurred())
				for i, d := range took {
					limit := limits[resources[i].Resource]
					byLimit[limit] = append(byLimit[limit], d)
				}
			}
			for limit, took := range byLimit {
				slices.Sort(took)
				p99 := took[len(took)-1-len(took)/100]
				r.figure(fmt.Sprintf("noticed, at most %v: samples, median, p99, most", limit), "%d, %.1fs, %.1fs, %.1fs", len(took), took[len(took)/2].Seconds(), p99.Seconds(), took[len(took)-1].Seconds())
				if p99 > limit {
					r.violate(oracle.Violation{Oracle: "M", Rule: ruleUnnoticed, Object: name, Time: time.Now(), Detail: fmt.Sprintf("p99 %v, want %v", p99, limit)})
				}
			}
		},
	}
}

// makeKinds makes an object of each kind that is chosen.
func makeKinds(ctx context.Context, r *run, chosen func(stalledwatch.Kind) bool) (*stalledwatch.Objects, []stalledwatch.Kind) {
	ginkgo.GinkgoHelper()
	kinds, err := stalledwatch.Kinds()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	kinds = slices.DeleteFunc(kinds, func(k stalledwatch.Kind) bool { return !chosen(k) })
	objects, err := stalledwatch.Make(ctx, r.Cluster.AdminConfig(), kinds)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return objects, kinds
}
