// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

const (
	// maxFences bounds how many fences are kept that the cache has not passed.
	maxFences = 32
	// fenceEvery is how far apart fences are that others take.
	fenceEvery = 100 * time.Millisecond
)

// resource is what is known of one collection and its cache.
type resource struct {
	p   *Prover
	gvr schema.GroupVersionResource

	mu   sync.Mutex
	view cacheView // nil until registered
	// source tracks the view's store; nil if none does.
	source *rvtracker.Source
	// counted is how many objects the view had.
	counted count
	// fences of this epoch in the order taken: the newest that was passed, and those
	// after it.
	fences []Fence
	// quiet is the last quiet proof.
	quiet quiet
	// high is the highest RV known to have been the server's, and since when: at a time,
	// and after the fence numbered seq was sent.
	high struct {
		rv  string
		at  time.Time
		seq uint64
	}
	// seq is the number of fences sent.
	seq uint64
	// maxStore is the highest RV that the store was seen at in this epoch.
	maxStore string
	// epochAt is when the last rewind was found, epochSeq the last fence sent by then.
	epochAt  time.Time
	epochSeq uint64
	// held, after a rewind, is the RV of a store that may show the time before it.
	held string
	// quietAt is the store's RV at the last quiet proof: while it stands still there is
	// no use in giving it time.
	quietAt string

	// lacks is the RV that the cache was last shown to lack, and when.
	lacks struct {
		rv string
		at time.Time
	}

	// more is what the store was last found to have and a list not, and how far the first such list was.
	more struct {
		content
		upTo string
	}

	// uncounted is for how many fences more the cache is taken to have objects.
	uncounted int

	fence lane[fenceResult]
	proof lane[Proof]
	// changed, unless nil, is closed when those who wait for a flight are to look again.
	changed chan struct{}
	// Each keeps the last failure of its kind of request until asking again makes sense: a watch that broke says
	// nothing about lists.
	fenceHold, listHold, watchHold hold
	// level is the UID of the priority level of the last request.
	level string
	// patience, unless 0, is the time for a request in place of Options.RequestTimeout.
	patience time.Duration
	// late says for how long watches are taken to bring nothing in time.
	late lateness
}

// quiet says that a store at or past base, or if exact one that stands at base, lacks
// nothing up to upTo. An exact one moves along with a store whose content stays the same.
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

// register sets the cache, unless it is that of the same source already.
func (r *resource) register(view cacheView, source *rvtracker.Source) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if source != nil && r.source == source {
		return false
	}
	r.view, r.source, r.counted = view, source, count{}
	r.quiet, r.quietAt, r.maxStore, r.held, r.lacks.rv = quiet{}, "", "", "", ""
	return true
}

func (r *resource) trackedBy() *rvtracker.Source {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.source
}

// sample reads the store's RV. It must be called with mu held, so that what it notes
// is of the present epoch.
func (r *resource) sample() string {
	if r.view == nil {
		return ""
	}
	rv := r.view.ResourceVersion()
	r.left(rv)
	if !comparableRV(rv) {
		return rv
	}
	if r.held != "" {
		if !Less(rv, r.held) {
			return rv
		}
		// It went back: it was relisted from the rewound server.
		r.held = ""
	}
	if r.maxStore == "" || Less(r.maxStore, rv) {
		r.maxStore = rv
	}
	r.raise(rv)
	return rv
}

// left voids a quiet proof of a store that stood still once it has moved, even if it
// comes back: after a rewind the same RV may mean something else. A store that has the same content on its way to what
// the proof is about was moved by a bookmark, or by events that have left nothing.
func (r *resource) left(rv string) {
	switch q := r.quiet; {
	case !q.exact || rv == q.base:
	case Less(q.base, rv) && Less(rv, q.upTo) && r.has(q.content, rv):
		r.quiet.base = rv
	default:
		r.quiet = quiet{}
	}
}

func (r *resource) raise(rv string) {
	if r.high.rv == "" || Less(r.high.rv, rv) {
		r.high.rv, r.high.at, r.high.seq = rv, r.p.opts.Clock.Now(), r.seq
	}
}

// position is how far the cache is known to be complete, given the store's RV.
func (r *resource) position(storeRV string) string {
	if r.held != "" {
		return ""
	}
	if r.quiet.covers(storeRV) && Less(storeRV, r.quiet.upTo) {
		return r.quiet.upTo
	}
	return storeRV
}

// lookup returns the newest proof if it is good for asOf.
func (r *resource) lookup(asOf time.Time, method Method) (Proof, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lookupLocked(asOf, method)
}

func (r *resource) lookupLocked(asOf time.Time, method Method) (Proof, bool) {
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

// verdict on a fence.
type verdict int

const (
	fenceNoted verdict = iota
	fenceOutdated
	fenceIncomparable
	fenceRewound
)

// note takes a fence into account.
func (r *resource) note(ctx context.Context, f Fence) verdict {
	r.mu.Lock()
	v, from := r.noteLocked(f)
	held := r.held
	r.mu.Unlock()
	if v == fenceRewound {
		klog.FromContext(ctx).Info("Resource versions went backward; all proofs are void",
			"resource", r.gvr.GroupResource().String(), "from", from, "to", f.ResourceVersion, "cacheHeldAt", held)
		r.p.opts.Metrics.Rewind(r.gvr)
		r.p.tell(func(o Observer) { o.Rewound(r.gvr) })
	}
	return v
}

// noteLocked says, too, what the server went back from.
func (r *resource) noteLocked(f Fence) (v verdict, from string) {
	switch {
	case !comparableRV(f.ResourceVersion):
		return fenceIncomparable, ""
	case f.seq != 0 && f.seq <= r.epochSeq, f.seq == 0 && !r.epochAt.IsZero() && !f.TakenAt.After(r.epochAt):
		return fenceOutdated, ""
	}
	storeRV := r.sample()
	if r.highBefore(f) && Less(f.ResourceVersion, r.high.rv) {
		from = r.high.rv
	} else if r.held == "" && Less(f.ResourceVersion, f.StoreRV) {
		from = f.StoreRV
	}
	if from != "" {
		v = fenceRewound
		r.rewind(storeRV, f.ResourceVersion)
	}
	r.raise(f.ResourceVersion)
	i := len(r.fences)
	for i > 0 && f.TakenAt.Before(r.fences[i-1].TakenAt) {
		i--
	}
	r.fences = append(r.fences, Fence{})
	copy(r.fences[i+1:], r.fences[i:])
	r.fences[i] = f
	if len(r.fences) > maxFences {
		// The oldest tells for how long the cache has been behind.
		r.fences = append(r.fences[:1], r.fences[2:]...)
	}
	return v, from
}

// highBefore is true if the highest RV was known before the fence was sent.
func (r *resource) highBefore(f Fence) bool {
	if f.seq != 0 {
		return r.high.seq < f.seq
	}
	return r.high.at.Before(f.TakenAt)
}

// rewind voids everything. The store's RV is no evidence of where it is: below the
// fence too it may be of the history that is gone, unless it has gone back already.
func (r *resource) rewind(storeRV, fenceRV string) {
	r.fences = nil
	r.quiet, r.quietAt = quiet{}, ""
	r.high.rv, r.lacks.rv = "", ""
	r.epochAt, r.epochSeq = r.p.opts.Clock.Now(), r.seq
	relisted := Less(storeRV, r.maxStore) && Passed(fenceRV, storeRV)
	r.maxStore = ""
	if !relisted && comparableRV(storeRV) {
		r.held = storeRV
	}
}

// oldestFence is the easiest to pass of those that are good for asOf.
func (r *resource) oldestFence(asOf time.Time) (Fence, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.oldestFenceLocked(asOf)
}

func (r *resource) oldestFenceLocked(asOf time.Time) (Fence, bool) {
	for _, f := range r.fences {
		if !f.TakenAt.Before(asOf) {
			return f, true
		}
	}
	return Fence{}, false
}

// takenSince reports whether the newest fence was taken after then.
func (r *resource) takenSince(then time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.fences) > 0 && r.fences[len(r.fences)-1].TakenAt.After(then)
}

// answer adds to a proof that is Unknown when the cache was last shown to lack what it still lacks.
func (r *resource) answer(proof Proof, err error) (Proof, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if proof.Outcome == Unknown && r.lacks.rv != "" && !Passed(r.sample(), r.lacks.rv) {
		proof.StaleAt = r.lacks.at
	}
	return proof, err
}

// behindFor is a lower bound on how long a change at rv has been committed.
func (r *resource) behindFor(rv string, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.fences {
		if Passed(f.ResourceVersion, rv) {
			return now.Sub(f.TakenAt)
		}
	}
	return 0
}

// waitFor gives the cache up to d to pass rv. Whether it has been passed is for the caller to look at.
func (r *resource) waitFor(ctx context.Context, rv string, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	r.mu.Lock()
	view := r.view
	r.mu.Unlock()
	if view.WaitFor(ctx, rv) != nil {
		// A cache that refuses to wait, as one that runs no waker does, gets the time anyway.
		<-ctx.Done()
	}
}
