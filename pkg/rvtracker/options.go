// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// Fencer reads the live RV of a collection.
type Fencer interface {
	// Fence returns the RV of a consistent read (LIST without resourceVersion) that
	// was sent after the call began. The tracker has at most one call per resource
	// under way. See ErrUnprovable for errors.
	Fence(ctx context.Context, resource schema.GroupResource) (rv string, err error)
}

// Options of a Tracker. The zero value is usable.
type Options struct {
	// Fencer, if nil, leaves only ObserveFence to prove anything.
	Fencer Fencer
	// Prover, if not nil, proves the other caches of a controller when one of them was relisted; see
	// beginReplace. Without it, owners do not wait after a relist. It also proves a cache that went back, so that owners wait no longer for it than they have to.
	Prover Prover
	// Metrics defaults to none.
	Metrics Metrics
	// OnRewind, if not nil, is called on the tracker's goroutine when a fence has proved a rewind, to have every
	// cache of the process relisted; it must not block. As etcd has one history, the tracker then doubts
	// all other stores, too: owners that read one wait until a fence of its resource has shown no rewind, and a list has
	// replaced its content. Without OnRewind the tracker judges each resource by itself.
	//
	// Only a resource that has no history of its own proves a rewind of all: one of the core group, or of SameStore. Any
	// other may have one (an aggregated API, an etcd of its own): its own store alone is outdated then, the tracker calls OnRewindOf
	// for it, and takes fences of core resources. Calls are 5 s apart at least, and up to 5 min if they go on.
	OnRewind func()
	// OnRewindOf, if not nil, is called like OnRewind, to have the caches of one resource relisted, and again for one that still
	// waits for that. A list that has begun since that time will do.
	OnRewindOf func(resource schema.GroupResource, since time.Time)
	// SameStore, if not nil, says whether a resource is usually in the core resources' etcd.
	SameStore func(resource schema.GroupResource) bool
	// OnStale, if not nil, is called once for each wait of an owner that lasts longer than a minute, on the
	// tracker's goroutine for logs and reports. Of many owners that wait, it reports 100 of a controller in a second.
	OnStale func(Wait)

	clock clock.WithTicker // of tests
}

const (
	// recheck is the time between fences of a resource that owners go on waiting for.
	recheck = 30 * time.Second
	// maxWait is how long an owner stays parked when nothing can be proven, now or
	// later (no Fencer and no ObserveFence, or ErrUnprovable).
	maxWait = 5 * time.Minute
)

func (o Options) withDefaults() Options {
	if o.clock == nil {
		o.clock = clock.RealClock{}
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	return o
}

// How a wait ended.
const (
	// outcomeSeen: the cache caught up.
	outcomeSeen = "Seen"
	// outcomeRewound: the awaited RV cannot come, because the server's RVs went backward.
	outcomeRewound = "Rewound"
	// outcomeAbandoned: nothing could be proven in time.
	outcomeAbandoned = "Abandoned"
	// outcomeUndone: an object is alive in a store that has passed its deletion.
	outcomeUndone = "Undone"
	// outcomeCleared: the owner is gone, or the tracker stopped.
	outcomeCleared = "Cleared"
)

// Where an RV that cannot be compared came from.
const (
	// originStore: from an informer's store.
	originStore = "Store"
	// originWrite: from the response to a write. That write is not protected.
	originWrite = "Write"
	// originFence: from a fence. That fence proves nothing.
	originFence = "Fence"
)

// LabelValues are what Metrics is called with: the reasons of Parked, the outcomes of Dropped, and the
// origins of Incomparable.
var LabelValues = struct{ Reasons, Dropped, Origins []string }{
	Reasons: reasons[:],
	Dropped: []string{outcomeRewound, outcomeAbandoned, outcomeUndone},
	Origins: []string{originStore, originWrite, originFence},
}

// Metrics receives what the tracker counts. The tracker may call methods concurrently, and
// with its lock held: they must be quick, must not block and must not call the
// tracker. It may report the end of a wait a moment after it wakes the owner. The resource of a wait is the one it was first for.
type Metrics interface {
	// WaitStarted: an owner was parked.
	WaitStarted(controller string, resource schema.GroupResource)
	// WaitEnded: a parked owner was let go after this time.
	WaitEnded(controller string, waited time.Duration, outcome string)
	// Parked is the number of parked owners of a controller now that wait for a reason.
	Parked(controller, reason string, owners int)
	// WriteToCache is the time from Wrote until the store passed that RV: once for
	// each record that the store passed, for the last and highest RV of it, and 0 for
	// a write that the store had passed before it was recorded. Late by the waker's
	// delay (microseconds when the process is not starved).
	WriteToCache(controller string, resource schema.GroupResource, latency time.Duration)
	// Stale: a fence showed that the server is at or past what a parked owner awaits, or a
	// proof that the cache lacks something; once for each wait.
	Stale(controller string, resource schema.GroupResource)
	// Dropped: records were dropped, neither seen nor cleared.
	Dropped(controller string, resource schema.GroupResource, outcome string)
	// Untracked: a write to a resource for which the controller gave no store. It is
	// not protected.
	Untracked(controller string, resource schema.GroupResource)
	// Incomparable: an RV that cannot be compared was ignored.
	Incomparable(resource schema.GroupResource, origin string)
	// Regression: a store went back to an older RV.
	Regression(resource schema.GroupResource)
	// Rewind: a fence proved that the server's RVs went backward; a new epoch began.
	Rewind(resource schema.GroupResource)
	// Fence: a fence that the tracker asked for has ended; err is nil on success.
	Fence(resource schema.GroupResource, err error)
	// Forgotten: the last store of the resource was unregistered.
	Forgotten(resource schema.GroupResource)
	// Proof: a proof that was needed after a relist has ended: Proven, Stale or Unknown.
	Proof(resource schema.GroupResource, outcome string)
}

// noMetrics counts nothing.
type noMetrics struct{}

var _ Metrics = noMetrics{}

func (noMetrics) WaitStarted(string, schema.GroupResource)                 {}
func (noMetrics) WaitEnded(string, time.Duration, string)                  {}
func (noMetrics) Parked(string, string, int)                               {}
func (noMetrics) WriteToCache(string, schema.GroupResource, time.Duration) {}
func (noMetrics) Stale(string, schema.GroupResource)                       {}
func (noMetrics) Dropped(string, schema.GroupResource, string)             {}
func (noMetrics) Untracked(string, schema.GroupResource)                   {}
func (noMetrics) Incomparable(schema.GroupResource, string)                {}
func (noMetrics) Regression(schema.GroupResource)                          {}
func (noMetrics) Rewind(schema.GroupResource)                              {}
func (noMetrics) Fence(schema.GroupResource, error)                        {}
func (noMetrics) Proof(schema.GroupResource, string)                       {}
func (noMetrics) Forgotten(schema.GroupResource)                           {}
