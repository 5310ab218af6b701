// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

var (
	claimsResource = resourceapi.Resource("resourceclaims")
	rulesResource  = resourceapi.Resource("devicetaintrules")
	slicesResource = resourceapi.Resource("resourceslices")
)

// DeviceTaintGuard decides on evictions because of device taints when they are due. It promises what
// TaintGuard does, for the objects that an eviction stems from: the claims of the pod, and the rules or
// the pools of devices that have the taints. Those whose caches are proven are taken from there, the
// others from live reads, and the controller's own rules are applied to them. The pod itself upstream
// reads before it deletes it, by UID.
type DeviceTaintGuard struct {
	Options
	*evictionWaits
	evictor  deviceEvictor
	claims   *livereads.Reads[*resourceapi.ResourceClaim]
	rules    *livereads.Reads[*resourceapi.DeviceTaintRule]
	slices   *livereads.Reads[[]*resourceapi.ResourceSlice]
	rechecks *rechecks[types.UID]

	mu    sync.Mutex
	waits map[types.UID]*evictionWait
}

var _ consistency.DeviceEvictionGuard = &DeviceTaintGuard{}

// NewDeviceTaintGuard returns a guard that works until ctx ends.
func NewDeviceTaintGuard(ctx context.Context, o Options, parts consistency.DeviceEvictor) *DeviceTaintGuard {
	evictor := deviceEvictor{parts}
	initMetrics(o.Controller)
	livereads.InitReads(o.Controller, claimsResource, rulesResource, slicesResource)
	return &DeviceTaintGuard{
		Options:       o,
		evictionWaits: newEvictionWaits(o.Controller),
		evictor:       evictor,
		claims: livereads.NewReads(ctx, o.Controller, claimsResource, o.Budget, func(ctx context.Context, key string) (*resourceapi.ResourceClaim, error) {
			namespace, name, _ := strings.Cut(key, "/")
			return evictor.liveClaim(ctx, namespace, name)
		}),
		rules: livereads.NewReads(ctx, o.Controller, rulesResource, o.Budget, evictor.liveRule),
		slices: livereads.NewReads(ctx, o.Controller, slicesResource, o.Budget, func(ctx context.Context, key string) ([]*resourceapi.ResourceSlice, error) {
			driver, pool, _ := strings.Cut(key, "/")
			return evictor.liveSlices(ctx, consistency.DevicePool{Driver: driver, Pool: pool})
		}),
		rechecks: newRechecks[types.UID](ctx),
		waits:    map[types.UID]*evictionWait{},
	}
}

// Judge implements consistency.DeviceEvictionGuard.
func (g *DeviceTaintGuard) Judge(ctx context.Context, e consistency.DeviceEviction) consistency.DeviceDecision {
	taints, live, err := g.view(ctx, e, recent(e.Due, proofAge))
	if err != nil {
		return g.wait(ctx, e, err)
	}
	g.CalledOff(e.UID) // the wait is over
	when, ok := g.evictor.EvictionTime(e, taints)
	logger := klog.FromContext(ctx)
	if !ok {
		metrics.CancelledEvictions(g.Controller, string(cancelNotTainted), 1)
		logger.Info("Cancelled an eviction that the server's state does not justify", "controller", g.Controller, "pod", e.Pod, "live", live)
		if live {
			g.rechecks.add(e.UID, func(ctx context.Context, asOf time.Time) bool { return g.proven(ctx, e, asOf) }, func() { g.evictor.Recheck(e) })
		}
		return consistency.DeviceDecision{}
	}
	if again := time.Until(when); again > 0 {
		metrics.CancelledEvictions(g.Controller, string(cancelTooEarly), 1)
		logger.Info("Put off an eviction: the pod tolerates the taints for longer", "controller", g.Controller, "pod", e.Pod, "until", when, "live", live)
		return consistency.DeviceDecision{Again: again}
	}
	return consistency.DeviceDecision{Evict: true}
}

// CalledOff implements consistency.DeviceEvictionGuard.
func (g *DeviceTaintGuard) CalledOff(pod types.UID) {
	g.mu.Lock()
	w := g.waits[pod]
	delete(g.waits, pod)
	g.mu.Unlock()
	if w != nil {
		w.end(g.evictionWaits)
	}
}

// view returns the objects that the eviction stems from, as they were at asOf or later, and whether a
// live read was needed for that.
func (g *DeviceTaintGuard) view(ctx context.Context, e consistency.DeviceEviction, asOf time.Time) (taints consistency.DeviceTaints, live bool, err error) {
	var claimKeys, poolKeys []string
	for _, name := range e.Claims {
		claimKeys = append(claimKeys, e.Pod.Namespace+"/"+name)
	}
	for _, pool := range e.Pools {
		poolKeys = append(poolKeys, pool.Driver+"/"+pool.Pool)
	}
	var l1, l2, l3 bool
	if taints.Rules, l1, err = known(ctx, g, g.rules, e.Rules, asOf, g.evictor.cachedRule); err != nil {
		return taints, false, err
	}
	slices, l2, err := known(ctx, g, g.slices, poolKeys, asOf, func(key string) ([]*resourceapi.ResourceSlice, error) {
		driver, pool, _ := strings.Cut(key, "/")
		return g.evictor.cachedSlices(consistency.DevicePool{Driver: driver, Pool: pool})
	})
	if err != nil {
		return taints, false, err
	}
	for _, pool := range slices {
		taints.Slices = append(taints.Slices, pool...)
	}
	taints.Claims, l3, err = known(ctx, g, g.claims, claimKeys, asOf, func(key string) (*resourceapi.ResourceClaim, error) {
		namespace, name, _ := strings.Cut(key, "/")
		return g.evictor.cachedClaim(namespace, name)
	})
	return taints, l1 || l2 || l3, err
}

// known returns those of the objects that exist: from the cache if it is proven, else from the server.
func known[T any](ctx context.Context, g *DeviceTaintGuard, reads *livereads.Reads[T], keys []string, asOf time.Time, cached func(key string) (T, error)) (found []T, live bool, err error) {
	if len(keys) == 0 {
		return nil, false, nil
	}
	proof := g.Prove(ctx, reads.Resource, asOf)
	for _, key := range keys {
		var val T
		var err error
		if proof.Fresh() {
			if val, err = cached(key); err != nil && !apierrors.IsNotFound(err) {
				return nil, false, fmt.Errorf("%s %s in the cache: %w", reads.Resource, key, err)
			}
		} else if val, _, err = reads.Get(ctx, key, asOf); err != nil && !apierrors.IsNotFound(err) {
			return nil, true, &unknownError{proof: proof, err: err}
		}
		if err == nil {
			found = append(found, val)
		}
	}
	return found, !proof.Fresh(), nil
}

// proven reports whether all caches that the eviction stems from are as new as asOf.
func (g *DeviceTaintGuard) proven(ctx context.Context, e consistency.DeviceEviction, asOf time.Time) bool {
	return g.Prove(ctx, claimsResource, asOf).Fresh() &&
		(len(e.Rules) == 0 || g.Prove(ctx, rulesResource, asOf).Fresh()) &&
		(len(e.Pools) == 0 || g.Prove(ctx, slicesResource, asOf).Fresh())
}

// wait puts off an eviction of which nothing can be known.
func (g *DeviceTaintGuard) wait(ctx context.Context, e consistency.DeviceEviction, why error) consistency.DeviceDecision {
	g.mu.Lock()
	w := g.waits[e.UID]
	if w == nil {
		w = &evictionWait{}
		g.waits[e.UID] = w
	}
	g.mu.Unlock()
	metrics.EvictionWaits(g.Controller, string(waitUnknown), 1)
	resource := claimsResource
	if unknown := (*unknownError)(nil); errors.As(why, &unknown) {
		resource = unknown.proof.Resource.GroupResource()
	}
	delay, first, tell := w.again(g.evictionWaits, livereads.PutOff{
		Object: e.Pod.String(), Resource: resource, For: "proofs or live reads that show the taint of its devices", Why: why.Error(),
	}, time.Now(), false, retryAfter(why))
	if first {
		klog.FromContext(ctx).Info("Put off an eviction that could not be verified or carried out", "controller", g.Controller, "pod", e.Pod, "cause", waitUnknown, "why", why.Error())
	}
	if tell {
		g.Report(e.Pod, e.UID, fmt.Sprintf("Eviction for a device taint has been due for %s and is put off: %s", time.Since(w.dueSince(time.Now())).Round(time.Second), why))
	}
	return consistency.DeviceDecision{Again: delay}
}
