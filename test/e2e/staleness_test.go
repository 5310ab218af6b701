// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/stalledwatch"
)

// readStalenessz reads the KCM's page.
func readStalenessz(ctx context.Context, r *run) stalenessz.Stalenessz {
	ginkgo.GinkgoHelper()
	out, err := stalledwatch.ReadPage(ctx, r.KCM)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return out
}

// What a benchmark asks of the page, too.
var (
	cacheOf     = stalledwatch.Find
	complete    = stalledwatch.Complete
	late        = stalledwatch.Late
	informersOf = stalledwatch.Informers
)

// The rules of M that more than one scenario has.
const (
	ruleUnmeasured = "caches not measured after the start"
	ruleUnnoticed  = "stalled watch not noticed in time"
	ruleDishonest  = "age is not honest"
)

// measured waits until every cache is known to be complete.
func (r *run) measured(ctx context.Context) {
	ginkgo.GinkgoHelper()
	var bad string
	// After a restart the old leader's lease has to run out, and caches that no protected controller reads take turns.
	if err := rig.Wait(ctx, 4*stepLimit, "every cache to be measured", func() (bool, error) {
		z := readStalenessz(ctx, r)
		bad = ""
		for _, c := range z.Caches {
			if !complete(c.State) {
				bad += fmt.Sprintf(" %s:%s(%s %s)", c.Resource, c.State, c.Reason, c.Detail)
			}
		}
		// Some come with the first sync of the garbage collector.
		return bad == "" && len(z.Caches) > 50, nil
	}); err != nil {
		r.violate(oracle.Violation{Oracle: "M", Rule: ruleUnmeasured, Time: time.Now(), Detail: bad})
	}
}

// falseAlarms counts the times that a cache has become lagging or stalled, and those that became unknown
// after they were measured.
func falseAlarms(ctx context.Context, r *run, labels ...string) (alarms float64) {
	ginkgo.GinkgoHelper()
	for _, state := range []stalenessmonitor.State{stalenessmonitor.Lagging, stalenessmonitor.Stalled, stalenessmonitor.Unknown} {
		alarms += series(ctx, r, "informer_staleness_state_changes_total", append(labels, fmt.Sprintf("state=%q", state))...)
	}
	return alarms
}

// churn makes pods and leases busy resources, with events less than a second apart, until it is stopped. What
// the nodes renew comes in bursts.
func churn(ctx context.Context, r *run) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		pods := r.Client.CoreV1().Pods(metav1.NamespaceDefault)
		leases := r.Client.CoordinationV1().Leases(metav1.NamespaceDefault)
		_, _ = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "busy"}}, metav1.CreateOptions{})
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("churn-%d", i%5)
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{"nobody": "has-this"},
					Containers:   []corev1.Container{{Name: "main", Image: "example.com/none"}},
				},
			}
			_, _ = pods.Create(ctx, pod, metav1.CreateOptions{})
			none := int64(0)
			_ = pods.Delete(ctx, fmt.Sprintf("churn-%d", (i+1)%5), metav1.DeleteOptions{GracePeriodSeconds: &none})
			renewed := fmt.Sprintf(`{"spec":{"leaseTransitions":%d}}`, i)
			_, _ = leases.Patch(ctx, "busy", types.MergePatchType, []byte(renewed), metav1.PatchOptions{})
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	return func() { cancel(); <-done }
}

// noticed waits until the page says that a cache is behind, and returns after what time from since.
func (r *run) noticed(ctx context.Context, resource schema.GroupResource, since time.Time, limit time.Duration) time.Duration {
	ginkgo.GinkgoHelper()
	err := rig.Wait(ctx, 2*limit, "the stalled watch to be noticed", func() (bool, error) {
		c, ok := cacheOf(readStalenessz(ctx, r), resource)
		return ok && late(c.State), nil
	})
	took := time.Since(since)
	if err != nil || took > limit {
		r.violate(oracle.Violation{Oracle: "M", Rule: ruleUnnoticed, Object: resource.String(), Time: time.Now(),
			Detail: fmt.Sprintf("after %v, want %v at most; %v", took, limit, err)})
	}
	return took
}

// healed waits until the page says that a cache is complete again.
func (r *run) healed(ctx context.Context, resources ...schema.GroupResource) {
	ginkgo.GinkgoHelper()
	for _, resource := range resources {
		gomega.Expect(rig.Wait(ctx, patience, resource.String()+" to be complete again", func() (bool, error) {
			c, ok := cacheOf(readStalenessz(ctx, r), resource)
			return ok && complete(c.State), nil
		})).To(gomega.Succeed())
	}
}

// shownWaiting: the page says that something waits, for what, since when and why.
func (r *run) shownWaiting(ctx context.Context, controller, owner string) {
	ginkgo.GinkgoHelper()
	r.eventually(ctx, "the page to show that "+owner+" wait", func() (bool, error) {
		for _, w := range readStalenessz(ctx, r).Waits {
			if w.Controller == controller && w.Owner == owner && w.For != "" && w.Why != "" && w.WaitSeconds > 0 {
				r.figure("page: "+controller, "%s wait for %s", w.Owner, w.For)
				return true, nil
			}
		}
		return false, nil
	})
}

// probeCost is what the probes have cost so far: requests by kind, bytes of bodies, and the most requests for
// one resource.
type probeCost struct {
	fences, lists, watches, bytes float64
	byResource                    map[string]float64
}

func (c probeCost) requests() float64 { return c.fences + c.lists + c.watches }

func probeCosts(ctx context.Context, r *run) probeCost {
	ginkgo.GinkgoHelper()
	out := probeCost{byResource: map[string]float64{}}
	for _, c := range readStalenessz(ctx, r).Caches {
		labels := []string{fmt.Sprintf("group=%q", c.Group), fmt.Sprintf("resource=%q", c.Resource)}
		fences := series(ctx, r, "informer_staleness_probe_requests_total", append(labels, `request="fence"`)...)
		watches := series(ctx, r, "informer_staleness_probe_requests_total", append(labels, `request="watch"`)...)
		lists := series(ctx, r, "informer_staleness_probe_requests_total", append(labels, `request="list"`)...)
		out.fences += fences
		out.lists += lists
		out.watches += watches
		out.byResource[strings.Trim(c.Resource+"."+c.Group, ".")] = fences + lists + watches
	}
	out.bytes = series(ctx, r, "informer_staleness_probe_response_bytes_total")
	return out
}
