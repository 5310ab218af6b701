// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

type fenceResult struct {
	fence Fence
	f     *failure
}

// Fence takes a fence that is sent after the call, or shares one of another caller
// that is not sent yet. The error is an *Error, or wraps ctx's.
func (p *Prover) Fence(ctx context.Context, gvr schema.GroupVersionResource) (Fence, error) {
	return p.FenceSince(ctx, gvr, time.Now())
}

// FenceSince is Fence for a caller to whom one that was sent at asOf or later will do, if it is under way or known.
func (p *Prover) FenceSince(ctx context.Context, gvr schema.GroupVersionResource, asOf time.Time) (Fence, error) {
	r := p.resource(gvr)
	result, err := r.fenceSince(ctx, asOf)
	if err != nil {
		return Fence{}, err
	}
	if result.f != nil {
		return Fence{}, &Error{Resource: gvr, Reason: result.f.reason, RetryAfter: result.f.retryAfter, Err: result.f.err}
	}
	return result.fence, nil
}

func (r *resource) fenceSince(ctx context.Context, asOf time.Time) (fenceResult, error) {
	known := func() (fenceResult, bool) {
		f, ok := r.oldestFenceLocked(asOf)
		return fenceResult{fence: f}, ok
	}
	result, err := share(ctx, r, &r.fence, asOf, known, r.takeFence)
	if errors.Is(err, errClosed) {
		return fenceResult{f: &failure{reason: reasonClosed, err: err}}, nil
	}
	return result, err
}

// begun is a fence before its answer. The source notes what is known before it is sent: only that makes its answer evidence.
type begun struct {
	Fence
	source *rvtracker.Source
	token  rvtracker.FenceToken
}

func (r *resource) beginFence() begun {
	b := begun{source: r.trackedBy()}
	if b.source != nil {
		b.token = b.source.BeginFence()
		r.trusts() // Whatever doubt the answer ends has voided what was known before.
	}
	b.TakenAt = time.Now()
	return b
}

// endFence has the source judge the answer, and keeps the fence if it counts. Without a cache it is not kept.
func (r *resource) endFence(b begun, rv string) (Fence, *failure) {
	f := b.Fence
	f.ResourceVersion = rv
	var err error
	if b.source != nil {
		f.Epoch, err = b.source.ObserveFence(b.token, rv)
	}
	switch {
	case !comparableRV(rv):
		return f, &failure{reason: ReasonIncomparable, retryAfter: errorBackoff, err: fmt.Errorf("server's resource version %q cannot be compared", cut(rv))}
	case err != nil:
		return f, &failure{reason: ReasonRewind, err: err}
	case b.source != nil && !r.note(b.source, f):
		return f, &failure{reason: ReasonRewind, err: errors.New("the fence is from before resource versions went backward")}
	}
	if fenced := r.p.fenced.Load(); fenced != nil {
		(*fenced)(r.gvr, f)
	}
	return f, nil
}

func (r *resource) takeFence(ctx context.Context, fl *flight[fenceResult]) fenceResult {
	start := time.Now()
	fence, f := r.readFence(ctx, fl)
	if f != nil && f.reason == ReasonNoServer && f.retryAfter == 0 {
		fence, f = r.readFence(ctx, fl)
	}
	r.p.opts.Metrics.Fence(r.gvr, time.Since(start))
	return fenceResult{fence: fence, f: f}
}

func (r *resource) readFence(ctx context.Context, fl *flight[fenceResult]) (Fence, *failure) {
	t, f := r.p.admit(ctx, &r.fenceBackoff, r)
	if f != nil {
		return Fence{}, f
	}
	b := r.beginFence()
	fl.begin(b.TakenAt)
	var fence Fence
	list, whole, f := r.readPage(ctx)
	if f == nil {
		fence, f = r.endFence(b, list.ResourceVersion)
	}
	t.end(ctx, f)
	if f != nil {
		return Fence{}, f
	}
	if whole {
		r.proveByPage(fence, list.Items)
	}
	return fence, nil
}

// readPage reads no object, if that is possible, or one; whole says that the collection has no other.
func (r *resource) readPage(ctx context.Context) (list *metav1.PartialObjectMetadataList, whole bool, f *failure) {
	if r.p.opts.Namespaced != nil && r.holdsObjects() {
		if namespaced, known := r.p.opts.Namespaced(r.gvr); known {
			list, f = r.p.client.listNothing(ctx, r.gvr, namespaced)
			return list, false, f
		}
	}
	list, f = r.p.client.list(ctx, r.gvr, 1, "")
	return list, f == nil && list.Continue == "", f
}

// recount is the number of fences after which the objects of a cache that had some are counted again.
const recount = 12

// holdsObjects is false for a cache that is empty or unknown. It does not count a large cache each time.
func (r *resource) holdsObjects() bool {
	r.mu.Lock()
	view := r.view
	counted := r.uncounted > 0
	if counted {
		r.uncounted--
	}
	r.mu.Unlock()
	if counted || view == nil {
		return counted
	}
	n := view.Len()
	if n > few {
		r.mu.Lock()
		r.uncounted = recount
		r.mu.Unlock()
	}
	return n > 0
}

// proveByPage makes a list proof of a fence that brought the whole collection, if the store equals it.
func (r *resource) proveByPage(fence Fence, items []metav1.PartialObjectMetadata) {
	r.mu.Lock()
	view, at := r.view, r.sample()
	trusted := r.trusted
	r.mu.Unlock()
	if view == nil || !trusted || !Less(at, fence.ResourceVersion) || view.Len() > len(items) {
		return
	}
	want := listing{fence: fence, objects: map[string]object{}, complete: true}
	want.add(items)
	if diff := want.compare(view); diff.objects == 0 {
		r.settled(quiet{base: at, upTo: fence.ResourceVersion, exact: true, content: want.content()}, fence)
	}
}

// prove proves the cache as of asOf, which no known proof covers.
func (r *resource) prove(ctx context.Context, asOf time.Time) (Proof, error) {
	target, ok := r.oldestFence(asOf)
	if !ok && !r.worthWaiting() && r.small() {
		// The store still stands where a quiet proof found it: a list is fence and proof in one request.
		if proof, done := r.unprovable(); done {
			return proof, nil
		}
		return r.shareQuiet(ctx, asOf, r.proveQuiet)
	}
	if !ok {
		result, err := r.fenceSince(ctx, asOf)
		if err != nil {
			return r.unknown(ReasonTimeout, err), err
		}
		if result.f != nil {
			return result.f.proof(r.gvr), nil
		}
		if target, ok = r.oldestFence(asOf); !ok {
			return r.unknown(ReasonRewind, errors.New("resource versions went backward after the fence")), nil
		}
		if proof, ok := r.lookup(asOf, methodFence); ok {
			return proof, nil
		}
	}
	if r.worthWaiting() {
		r.waitFor(ctx, target.ResourceVersion, passWait)
		if proof, ok := r.lookup(asOf, methodWait); ok {
			return proof, nil
		}
		if ctx.Err() != nil {
			err := fmt.Errorf("proving %s: %w", r.gvr.GroupResource(), context.Cause(ctx))
			return r.unknown(ReasonTimeout, err), err
		}
	}
	if proof, done := r.unprovable(); done {
		return proof, nil
	}
	return r.shareQuiet(ctx, asOf, r.proveQuiet)
}

// shareQuiet joins or starts a quiet proof.
func (r *resource) shareQuiet(ctx context.Context, asOf time.Time, work func(context.Context, *flight[Proof]) Proof) (Proof, error) {
	known := func() (Proof, bool) { return r.lookupLocked(asOf, methodWait) }
	quiet, err := share(ctx, r, &r.proof, asOf, known, work)
	if proof, ok := r.lookup(asOf, methodWait); ok {
		// The shared answer, or the cache has caught up meanwhile.
		if quiet.Outcome == Proven {
			proof.Method, proof.Ahead = quiet.Method, quiet.Ahead
		}
		return proof, nil
	}
	switch {
	case errors.Is(err, errClosed):
		return r.unknown(reasonClosed, err), nil
	case err != nil:
		return r.unknown(ReasonTimeout, err), err
	case quiet.Outcome == Proven:
		return r.unknown(ReasonRegressed, errors.New("the cache or the server went back after the proof")), nil
	}
	return quiet, nil
}

func (r *resource) unknown(reason Reason, err error) Proof {
	return (&failure{reason: reason, err: err}).proof(r.gvr)
}

// worthWaiting is false for a store that stands where the last quiet proof found it,
// and for one that has to relist first.
func (r *resource) worthWaiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	rv := r.sample()
	return r.trusted && (r.quietAt == "" || rv != r.quietAt)
}

// unprovable returns true, and why, for a store of which no quiet proof is possible.
func (r *resource) unprovable() (Proof, bool) {
	r.mu.Lock()
	rv := r.sample()
	r.mu.Unlock()
	switch {
	case rv == "":
		return r.unknown(ReasonNotSynced, errors.New("the cache has no resource version")), true
	case !comparableRV(rv):
		return r.unknown(ReasonIncomparable, fmt.Errorf("cache's resource version %q cannot be compared", rv)), true
	}
	return Proof{}, false
}
