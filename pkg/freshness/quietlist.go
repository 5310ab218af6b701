// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

const (
	// pageSize of a list proof.
	pageSize = 500
	// heldFactor times SmallCollection is the largest collection that is listed when no watch can prove anything: after a
	// rewind, and where events come too late.
	heldFactor = 20
	// maxCompares bounds how often a list is compared with a store that moves.
	maxCompares = 10
	// maxPageTimes is how many times the time for one page a whole list may take.
	maxPageTimes = 6
)

// maxPages of a list of up to limit objects and one page more; a server may send shorter pages.
func maxPages(limit int) int { return 2 + 2*(limit+pageSize)/pageSize }

// proveQuiet decides by list or watch whether a cache that has not passed the fences lacks
// anything. Its proof goes into r.quiet and the fences, where every caller finds it.
func (r *resource) proveQuiet(ctx context.Context, fl *flight[Proof]) Proof {
	view, trusted := r.cache()
	n, small := view.Len(), r.p.opts.SmallCollection
	var proof Proof
	var f *failure
	switch {
	case trusted && n <= small:
		proof, f = r.proveByList(ctx, fl, view, small, passWait)
	case trusted && n <= small*heldFactor && r.eventsAreLate():
		if f = r.listAgain(n); f == nil {
			proof, f = r.proveByList(ctx, fl, view, small*heldFactor, passWait)
		}
	case trusted:
		proof, f = r.proveByWatch(ctx, fl, view)
	case n <= small*heldFactor:
		proof, f = r.proveByList(ctx, fl, view, small*heldFactor, passWait)
	default:
		f = &failure{reason: ReasonRewind, err: errNotRelisted}
	}
	return r.concluded(proof, f)
}

var errNotRelisted = errors.New("the cache was not relisted after resource versions went backward")

// cache returns the view, and whether it shows the present history.
func (r *resource) cache() (view cacheView, trusted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.align()
	return r.view, r.trusted
}

func (r *resource) trusts() bool {
	_, trusted := r.cache()
	return trusted
}

// concluded notes how a quiet proof ended.
func (r *resource) concluded(proof Proof, f *failure) Proof {
	if f != nil {
		return f.proof(r.gvr)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quietAt = ""
	if proof.Outcome == Proven {
		r.quietAt = r.sample()
	}
	return proof
}

// settled records a quiet proof for a fence, unless the store has left it already, or the fence is void: a rewind was found since, or a doubt
// has begun. The RV up to which it reaches was the server's, like a fence's: a fence below it that is sent from now on shows a rewind.
func (r *resource) settled(q quiet, fence Fence) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	covers := q.covers(r.sample())
	void := len(r.fences) == 0 || fence.TakenAt.Before(r.fences[0].TakenAt)
	trusted := r.trusted || q.exact && !Less(q.upTo, q.base)
	if !covers || void || !trusted || !r.source.ServerAt(fence.Epoch, q.upTo) {
		return false
	}
	r.quiet = q
	return true
}

// stale describes a cache that lacks events, the first of which is at rv.
func (r *resource) stale(method string, events int, rv string, fence Fence) Proof {
	now := time.Now()
	r.mu.Lock()
	storeRV := r.sample()
	r.lacks.rv, r.lacks.at = rv, now
	r.mu.Unlock()
	return Proof{
		Resource: r.gvr, Outcome: Stale, Method: method, At: fence.TakenAt, ResourceVersion: rv,
		Events: events, RVs: Distance(storeRV, fence.ResourceVersion),
		AtLeast: max(r.behindFor(rv, now), now.Sub(fence.TakenAt)),
	}
}

type object struct {
	uid types.UID
	rv  string
}

// listing is a consistent list, perhaps without its last pages.
type listing struct {
	fence    Fence
	objects  map[string]object
	complete bool
}

// proveByList compares a consistent metadata list with the store. The list is a fence
// itself, so the proof is as of the time at which it began. A store that differs has up to wait to catch up.
func (r *resource) proveByList(ctx context.Context, fl *flight[Proof], view cacheView, limit int, wait time.Duration) (Proof, *failure) {
	start := time.Now()
	want, f := r.readList(ctx, fl, limit)
	r.p.opts.Metrics.List(r.gvr, time.Since(start))
	if f != nil {
		return Proof{}, f
	}
	upTo := want.fence.ResourceVersion
	var diff difference
	waited := false
	for range maxCompares {
		if proof, ok := r.lookup(want.fence.TakenAt, methodList); ok {
			return proof, nil
		}
		trusted := r.trusts()
		at := r.storeRV()
		if !trusted && Less(upTo, at) {
			// What the store has past the list may be of a history that is gone. At or below the list
			// every object must be as listed.
			return Proof{}, &failure{reason: ReasonRewind, err: fmt.Errorf("the cache, at %s, was not seen to relist after resource versions went backward; the server is at %s", at, upTo)}
		}
		diff = want.compare(view)
		if r.storeRV() != at {
			// The store moved during the comparison, which so proves nothing.
			continue
		}
		if diff.objects == 0 && want.complete {
			if r.settled(quiet{base: at, upTo: upTo, exact: true, content: want.content()}, want.fence) {
				if proof, ok := r.lookup(want.fence.TakenAt, methodList); ok {
					return proof, nil
				}
			}
			continue
		}
		if waited {
			break
		}
		waited = true
		awaited := diff.highest
		if awaited == "" || diff.extra {
			awaited = upTo
		}
		r.waitFor(ctx, awaited, wait)
	}
	switch {
	case diff.objects == 0 && want.complete:
		return Proof{}, &failure{reason: ReasonRegressed, err: errors.New("the cache kept changing during the comparison")}
	case diff.objects == 0:
		return Proof{}, &failure{reason: ReasonTooMany, err: fmt.Errorf("more than %d objects on the server", len(want.objects))}
	case !r.trusts():
		// These are different histories, and no number of changes lies between them.
		return Proof{}, &failure{reason: ReasonRewind, err: fmt.Errorf("%d objects in the cache differ from the server, whose resource versions went backward", diff.objects)}
	}
	lost := r.lost(diff, upTo)
	lowest := diff.lowest
	if lowest == "" || Passed(r.storeRV(), lowest) {
		// After a restore with bumped revisions the store, of a history that is gone, may be past what it lacks.
		lowest = upTo
	}
	proof := r.stale(methodList, diff.objects, lowest, want.fence)
	proof.Lost = lost
	return proof, nil
}

// lost reports whether the store, which differs from a list at upTo, has passed what it lacks: the RV of an object, or, if it has
// objects that an earlier list did not have either, the RV of that list.
func (r *resource) lost(diff difference, upTo string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.sample()
	if diff.more != r.more.content {
		r.more.content, r.more.upTo = diff.more, upTo
	}
	return diff.lowest != "" && Passed(at, diff.lowest) || diff.extra && Passed(at, r.more.upTo)
}

// readList reads the collection, page by page at one RV.
func (r *resource) readList(ctx context.Context, fl *flight[Proof], limit int) (listing, *failure) {
	ctx, cancel := context.WithTimeout(ctx, maxPageTimes*r.p.opts.RequestTimeout)
	defer cancel()
	out := listing{objects: map[string]object{}}
	token := ""
	for range maxPages(limit) {
		t, f := r.p.admit(ctx, &r.listBackoff, r)
		if f != nil {
			return out, f
		}
		next, f := r.readListPage(ctx, fl, &out, token)
		t.end(ctx, f)
		switch {
		case f != nil:
			return out, f
		case next == "":
			out.complete = true
			return out, nil
		case len(out.objects) > limit+pageSize:
			// The store has at most limit objects: it lacks some of these already.
			return out, nil
		}
		token = next
	}
	return out, &failure{reason: ReasonTooMany, retryAfter: errorBackoff, err: fmt.Errorf("more than %d pages for %d objects", maxPages(limit), len(out.objects))}
}

// readListPage adds a page to the listing, and returns the token of the next.
func (r *resource) readListPage(ctx context.Context, fl *flight[Proof], out *listing, token string) (next string, f *failure) {
	var b begun
	if token == "" {
		b = r.beginFence()
		fl.begin(b.TakenAt)
	}
	page, f := r.p.client.list(ctx, r.gvr, pageSize, token)
	if f != nil {
		return "", f
	}
	if token == "" {
		if out.fence, f = r.endFence(b, page.ResourceVersion); f != nil {
			return "", f
		}
	} else if page.ResourceVersion != out.fence.ResourceVersion {
		return "", refusal("a page of the list at %s came from %q", out.fence.ResourceVersion, cut(page.ResourceVersion))
	}
	before := len(out.objects)
	out.add(page.Items)
	if page.Continue != "" && len(out.objects) == before {
		return "", refusal("a page of the list at %s brought nothing new and goes on", out.fence.ResourceVersion)
	}
	return page.Continue, nil
}

func (l *listing) add(items []metav1.PartialObjectMetadata) {
	for i := range items {
		m := &items[i]
		l.objects[cache.MetaObjectToName(m).String()] = object{m.UID, m.ResourceVersion}
	}
}

// difference between a list and a store.
type difference struct {
	objects         int
	lowest, highest string // RVs of what the store lacks
	extra           bool   // the store has what the list does not
	more            content
}

// compare finds the objects that the store does not have as listed or newer.
func (l *listing) compare(view cacheView) difference {
	var d difference
	upTo := l.fence.ResourceVersion
	matched := make(map[string]struct{}, len(l.objects))
	view.Each(func(key string, uid types.UID, rv string) {
		want, ok := l.objects[key]
		switch {
		case ok && want.uid == uid && want.rv == rv && rv != "":
			matched[key] = struct{}{}
		case Less(upTo, rv):
			// Changed, or created again, after the list.
			matched[key] = struct{}{}
		case !ok && l.complete:
			d.objects++
			d.extra = true
			d.more.add(key, uid, rv)
		}
	})
	for key, want := range l.objects {
		if _, ok := matched[key]; ok {
			continue
		}
		d.objects++
		if d.lowest == "" || Less(want.rv, d.lowest) {
			d.lowest = want.rv
		}
		if d.highest == "" || Less(d.highest, want.rv) {
			d.highest = want.rv
		}
	}
	return d
}
