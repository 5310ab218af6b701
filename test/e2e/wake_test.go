// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

const (
	// wakeGoal is how soon after its cache caught up an owner must be reconciled (gap 8).
	wakeGoal = 100 * time.Millisecond
	// heldFor is long enough for a retry with backoff (5 ms, doubled each time) to have ended with a wait
	// of more than five seconds.
	heldFor = 12 * time.Second
	// wakeLimit is how long a run waits for an owner to be reconciled before it calls it stuck. Backoff
	// would go up to 1000 s.
	wakeLimit = 40 * time.Second

	ruleWake = "woken late"
)

// quickClient keeps the controllers' own rate limit of 20 requests a second, and waiting for one of two
// workers, out of what is measured. There is one DaemonSet besides the owners at most.
var quickClient = []string{"--kube-api-qps=200", "--kube-api-burst=400", fmt.Sprintf("--concurrent-daemonset-syncs=%d", heldOwners+1)}

// untoldFor is how long a stream may tell nothing of what it has delivered before the page is asked for the cache.
const untoldFor = 5 * time.Second

// lastRV returns the resource version of the last event of a resource for which match is true.
func (r *run) lastRV(resource schema.GroupResource, match func(truth.Event) bool) string {
	rv := uint64(0)
	for _, e := range r.Truth.Events(resource) {
		if match(e) {
			rv = max(rv, e.RV)
		}
	}
	return strconv.FormatUint(rv, 10)
}

// told waits until the KCM's watches have been handed everything that has happened to a resource so far.
func (r *run) told(ctx context.Context, resource schema.GroupResource) {
	ginkgo.GinkgoHelper()
	gomega.Expect(r.Truth.Sync(ctx)).To(gomega.Succeed())
	rv := r.lastRV(resource, func(truth.Event) bool { return true })
	r.eventually(ctx, fmt.Sprintf("the KCM to be told of %s at %s", resource, rv), func() (bool, error) {
		return r.Told(resource, rv)
	})
}

// sharedWatch returns the watch stream that feeds the controllers' caches of a resource. A proof of the
// KCM may watch it, too; the proxy does not tell the two apart, the audit log does.
func (r *run) sharedWatch(resource schema.GroupResource) (rv string, at time.Time, err error) {
	var opened time.Time
	events, err := r.Audit()
	if err != nil {
		return "", time.Time{}, err
	}
	for i := range events {
		if e := &events[i]; e.Verb == "watch" && isSharedInformer(e, resource) && e.RequestReceivedTimestamp.After(opened) {
			opened = e.RequestReceivedTimestamp
		}
	}
	nearest := time.Hour
	for _, w := range r.Proxy.Watches() {
		if d := w.Since.Sub(opened).Abs(); w.Request.Resource == resource && d < nearest {
			nearest, rv, at = d, w.LastDelivered.ResourceVersion, w.LastDelivered.Time
		}
	}
	return rv, at, nil
}

// isSharedInformer says that a request was made to fill the controllers' cache of a resource.
func isSharedInformer(e *controlplane.AuditEvent, resource schema.GroupResource) bool {
	return e.ObjectRef.Resource == resource.Resource && e.ObjectRef.APIGroup == resource.Group &&
		strings.HasPrefix(e.UserAgent, "kube-controller-manager") && strings.Contains(e.UserAgent, "shared-informers")
}

// fillsAnew says that a request of an informer is for all objects, and not for what has happened since.
func fillsAnew(e *controlplane.AuditEvent) bool {
	return e.Verb == "list" || strings.Contains(e.RequestURI, "sendInitialEvents=true")
}

// caughtUp waits until the controllers' cache of a resource has been handed a resource version, and returns
// when that was. It must be asked while a fault still keeps later events back: the stream tells of the
// latest only.
func (r *run) caughtUp(ctx context.Context, resource schema.GroupResource, rv string, limit time.Duration) time.Time {
	ginkgo.GinkgoHelper()
	want, err := strconv.ParseUint(rv, 10, 64)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	var when time.Time
	began := time.Now()
	gomega.Expect(rig.Wait(ctx, limit, fmt.Sprintf("the cache of %s to catch up to %s", resource, rv), func() (bool, error) {
		got, at, err := r.sharedWatch(resource)
		if err == nil && r.Arm == rig.P && time.Since(began) > untoldFor {
			// A list without objects, after which nothing happens, is not told of by the stream.
			if c, ok := cacheOf(readStalenessz(ctx, r), resource); ok {
				got, at = c.StoreResourceVersion, time.Now()
			}
		}
		if err != nil || got == "" {
			return false, err
		}
		reached, err := strconv.ParseUint(got, 10, 64)
		when = at
		return reached >= want, err
	})).To(gomega.Succeed())
	return when
}

// wakes is the oracle of a wake: for each owner, the time from when its cache caught up until the first
// request of a reconcile, the creation of the revision that an edit since the given time made necessary. An
// arm that did not wait for its cache has made it before. An owner without one within wakeLimit is stuck.
func (r *run) wakes(ctx context.Context, name string, since, caughtUp time.Time, owners map[types.UID]string) {
	ginkgo.GinkgoHelper()
	woken := map[string]time.Duration{}
	look := func() (bool, error) {
		writes, err := r.Writes()
		for i := range writes {
			e := &writes[i]
			if e.ServiceAccount() != oracle.DaemonSetController || e.Verb != "create" || e.ObjectRef.Resource != "controllerrevisions" ||
				e.RequestReceivedTimestamp.Before(since) {
				continue
			}
			owner := e.ObjectRef.Name[:strings.LastIndex(e.ObjectRef.Name, "-")]
			if _, known := woken[owner]; !known {
				woken[owner] = max(0, e.RequestReceivedTimestamp.Sub(caughtUp))
			}
		}
		return len(woken) == len(owners), err
	}
	// What is stuck is judged below, so the wait's own error says nothing more.
	_ = rig.Wait(ctx, wakeLimit, name, look)
	var took []time.Duration
	for _, owner := range owners {
		d, ok := woken[owner]
		if !ok {
			d = wakeLimit
		}
		took = append(took, d)
		if d > wakeGoal {
			r.violate(oracle.Violation{
				Oracle: "L", Rule: ruleWake, Object: owner, Time: caughtUp,
				Detail: fmt.Sprintf("reconciled %v after its cache had caught up (stuck: %t)", d, !ok),
			})
		}
	}
	slices.Sort(took)
	r.figure(name+" p50", "%v", rounded(took[len(took)/2]))
	r.figure(name+" p99", "%v", rounded(took[len(took)-1]))
	r.figure(name+" stuck", "%d of %d", len(owners)-len(woken), len(owners))
}

func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// deleteNow deletes a pod without waiting for its node.
func deleteNow(ctx context.Context, r *run, name string) {
	ginkgo.GinkgoHelper()
	err := r.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}
