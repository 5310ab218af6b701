// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

const (
	// maxFences bounds how many fences are kept that the cache has not passed.
	maxFences = 32
	// fenceEvery is the least time between two writes that are used as fences.
	fenceEvery = 100 * time.Millisecond
)

// resource is what is known of one collection and its cache.
type resource struct {
	p   *Prover
	gvr schema.GroupVersionResource

	mu   sync.Mutex
	view cacheView // nil until registered
	// source tracks the view's store, and alone judges whether RVs went backward. All that is kept here is of its epoch;
	// trusted says that the view is, too.
	source  *rvtracker.Source
	epoch   uint64
	trusted bool
	// counted is how many objects the view had.
	counted count
	// fences of this epoch in the order taken: the newest that was passed, and those
	// after it.
	fences []Fence
	// quiet is the last quiet proof.
	quiet quiet
	// quietAt is the store's RV at the last quiet proof: while the store stands still it will not
	// pass a fence.
	quietAt string

	// lacks is the RV that the cache was last shown to lack, and when.
	lacks struct {
		rv string
		at time.Time
	}

	// more is what the store had beyond the last list, and the RV of the first list that did not have it.
	more struct {
		content
		upTo string
	}

	// uncounted is for how many more fences the cache counts as one with objects.
	uncounted int

	fence lane[fenceResult]
	proof lane[Proof]
	// changed, unless nil, is closed when the callers that wait for a flight should look again.
	changed chan struct{}
	// Each keeps the last failure of its kind of request until the next may be sent: a watch that broke says
	// nothing about lists.
	fenceBackoff, listBackoff, watchBackoff backoff
	// level is the UID of the priority level of the last request.
	level string
	// patience, unless 0, is the time for a request in place of Options.RequestTimeout.
	patience time.Duration
	// late says until when watches count as too late.
	late lateness
}

// quiet says that a store at or past base lacks nothing up to upTo; if exact, only a store that stands
// at base. The base of an exact one follows a store whose content stays the same.
type quiet struct {
	base, upTo string
	exact      bool
	// content of the store, of an exact one.
	content content
}

func (q *quiet) covers(storeRV string) bool {
	if q.exact {
		return q.base != "" && storeRV == q.base
	}
	return Passed(storeRV, q.base)
}

// register sets the cache, unless it has the same source already.
func (r *resource) register(view cacheView, source *rvtracker.Source) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.source == source {
		return false
	}
	r.view, r.source, r.counted = view, source, count{}
	r.epoch, r.trusted = source.Epoch()
	r.void()
	return true
}

// void forgets what is known about another cache, or a history that is gone.
func (r *resource) void() {
	r.fences = nil
	r.quiet, r.quietAt, r.lacks.rv = quiet{}, "", ""
}

// align voids what is kept if the source's epoch has changed. Call it with mu held, before reading any of that.
func (r *resource) align() {
	if r.source == nil {
		return
	}
	epoch, trusted := r.source.Epoch()
	if epoch != r.epoch {
		r.p.opts.Metrics.Rewind(r.gvr)
	}
	if epoch != r.epoch || r.trusted && !trusted {
		r.void()
	}
	r.epoch, r.trusted = epoch, trusted
}

func (r *resource) trackedBy() *rvtracker.Source {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.align()
	return r.source
}

// sample reads the store's RV, after align. mu must be held.
func (r *resource) sample() string {
	r.align()
	if r.view == nil {
		return ""
	}
	rv := r.view.ResourceVersion()
	r.left(rv)
	return rv
}

// left voids a quiet proof of a store that stood still once it has moved, even if it
// comes back: after a rewind the same RV may mean something else. If the store still has the same content, below the RV up to which
// the proof reaches, a bookmark has moved it, or events whose effects have cancelled out.
func (r *resource) left(rv string) {
	switch q := r.quiet; {
	case !q.exact || rv == q.base:
	case Less(q.base, rv) && Less(rv, q.upTo) && r.has(q.content, rv):
		r.quiet.base = rv
	default:
		r.quiet = quiet{}
	}
}

// position is the RV up to which the cache is known to be complete, given the store's RV. A cache that may show a history that is gone
// is complete only if it equals a list.
func (r *resource) position(storeRV string) string {
	switch covered := r.quiet.covers(storeRV); {
	case covered && (Less(storeRV, r.quiet.upTo) || r.quiet.exact && !r.trusted):
		return r.quiet.upTo
	case !r.trusted:
		return ""
	}
	return storeRV
}

// lookup returns the newest proof if it covers asOf.
func (r *resource) lookup(asOf time.Time, method string) (Proof, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lookupLocked(asOf, method)
}

func (r *resource) lookupLocked(asOf time.Time, method string) (Proof, bool) {
	storeRV := r.sample()
	pos := r.position(storeRV)
	for i := len(r.fences) - 1; i >= 0; i-- {
		f := r.fences[i]
		if !Passed(pos, f.ResourceVersion) {
			continue
		}
		r.fences = append(r.fences[:0], r.fences[i:]...)
		if f.TakenAt.Before(asOf) {
			break
		}
		proof := Proof{Resource: r.gvr, Outcome: Proven, Method: method, At: f.TakenAt, ResourceVersion: f.ResourceVersion}
		if r.quiet.covers(storeRV) && Less(r.quiet.base, f.ResourceVersion) && Passed(r.quiet.upTo, f.ResourceVersion) {
			proof.ResourceVersion, proof.Exact = r.quiet.base, r.quiet.exact
		}
		return proof, true
	}
	return Proof{}, false
}

// note keeps a fence of source's epoch, unless a rewind was found since, or the resource has another source now.
func (r *resource) note(source *rvtracker.Source, f Fence) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.source != source {
		return false
	}
	return r.noteLocked(f)
}

func (r *resource) noteLocked(f Fence) bool {
	if r.sample(); f.Epoch != r.epoch {
		return false
	}
	i := len(r.fences)
	for i > 0 && f.TakenAt.Before(r.fences[i-1].TakenAt) {
		i--
	}
	r.fences = slices.Insert(r.fences, i, f)
	if len(r.fences) > maxFences {
		r.thin()
	}
	return true
}

// thin drops the fence without which the gap is smallest. The oldest shows for how long the cache has been behind. A cache that lags passes the others one after
// the other, however many are taken within its lag: were those in the middle dropped first, it would pass none of them.
func (r *resource) thin() {
	drop, least := 0, time.Duration(math.MaxInt64)
	for i := 1; i < len(r.fences)-1; i++ {
		if gap := r.fences[i+1].TakenAt.Sub(r.fences[i-1].TakenAt); gap < least {
			drop, least = i, gap
		}
	}
	r.fences = slices.Delete(r.fences, drop, drop+1)
}

// wrote keeps the answer to a write as a fence, unless a fence is recent enough, or the answer proves nothing.
func (r *resource) wrote(rv string, sent rvtracker.Sent) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.align()
	if n := len(r.fences); n > 0 && r.fences[n-1].TakenAt.After(sent.At.Add(-fenceEvery)) {
		return false
	}
	epoch, ok := r.source.ObserveWrite(sent, rv)
	return ok && r.noteLocked(Fence{ResourceVersion: rv, TakenAt: sent.At, Epoch: epoch})
}

// oldestFence is the first fence at or after asOf: the easiest to pass.
func (r *resource) oldestFence(asOf time.Time) (Fence, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.oldestFenceLocked(asOf)
}

func (r *resource) oldestFenceLocked(asOf time.Time) (Fence, bool) {
	r.align()
	for _, f := range r.fences {
		if !f.TakenAt.Before(asOf) {
			return f, true
		}
	}
	return Fence{}, false
}

// answer adds StaleAt to a proof that is Unknown.
func (r *resource) answer(proof Proof, err error) (Proof, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.align()
	if proof.Outcome == Unknown && r.lacks.rv != "" && !Passed(r.sample(), r.lacks.rv) {
		proof.StaleAt = r.lacks.at
	}
	return proof, err
}

// behindFor is a lower bound on how long a change at rv has been committed.
func (r *resource) behindFor(rv string, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.align()
	for _, f := range r.fences {
		if Passed(f.ResourceVersion, rv) {
			return now.Sub(f.TakenAt)
		}
	}
	return 0
}

// waitFor waits for up to d until the cache passes rv. The caller checks whether it has.
func (r *resource) waitFor(ctx context.Context, rv string, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	r.mu.Lock()
	view := r.view
	r.mu.Unlock()
	if view.WaitFor(ctx, rv) != nil {
		// A cache that cannot wait, because its tracker does not run, has the time anyway.
		<-ctx.Done()
	}
}
