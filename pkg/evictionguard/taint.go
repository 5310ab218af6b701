// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

const (
	// proofAge is how old a proof may be when an eviction is begun.
	proofAge = 2 * time.Second
)

var nodesResource = schema.GroupResource{Resource: "nodes"}

// Options are what the guard of a controller's evictions needs. All fields are required.
type Options struct {
	// Controller labels metrics, logs and live reads.
	Controller string
	// Prove says whether the cache of a resource is as new as the server was at asOf.
	Prove func(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof
	// Budget of live reads.
	Budget *livereads.Budget
	// Report says on a pod that its eviction waits. It must not block.
	Report func(pod types.NamespacedName, uid types.UID, message string)
}

// TaintGuard decides on evictions because of node taints when they are due. It promises:
//
//   - A pod is deleted only if its node, as the server had it no earlier than when the eviction was due
//     and no longer than 5 s before each write that is part of the deletion, plus the time that it takes
//     to find that out, is gone, or has taints that the pod, as the server has it
//     then, does not tolerate or has tolerated for long enough; and only the pod, by UID, that the
//     eviction was scheduled for.
//   - One proof of the nodes answers for all pods; if none can be had, one live read of the node for all
//     of its pods, or one list of the nodes if many are wanted.
//   - While the budget of live reads has tokens to spare, one live read of the node is made for all of its
//     pods although the cache is proven. If the node has no taints on the server, live reads decide.
//   - Nothing is lost: an eviction of which nothing can be known, or whose requests fail, is tried again, and one that
//     was cancelled on a live read is looked at again when the cache has caught up. What failed before delays others
//     by 0.25 s for each of their requests, and evictions that the server refuses are tried every 2 s on average, all together.
//   - While the cache is fresh, an eviction is no later than it takes to prove that. Of those that are due
//     together the last is no later than upstream's, whatever time a request takes, and they cost no more
//     requests.
//
// All methods may be called concurrently.
type TaintGuard struct {
	Options
	*evictionWaits
	evictor  Evictor
	nodes    *liveNodes
	refused  *refusals
	checks   *nodeChecks
	rechecks *rechecks[string]
	relists  *relistedTaints // nil: not known
	gate     gate
}

var _ consistency.EvictionGuard = &TaintGuard{}

// NewTaintGuard returns a guard that works until ctx ends.
func NewTaintGuard(ctx context.Context, o Options, evictor Evictor) *TaintGuard {
	initMetrics(o.Controller)
	livereads.InitReads(o.Controller, nodesResource)
	return &TaintGuard{
		Options:       o,
		evictionWaits: newEvictionWaits(o.Controller),
		evictor:       evictor,
		nodes:         &liveNodes{Options: o, ctx: ctx, Reads: livereads.NewReads(ctx, o.Controller, nodesResource, o.Budget, evictor.LiveNode), list: evictor.LiveNodes},
		refused:       newRefusals(),
		checks:        newNodeChecks(ctx, o, evictor),
		rechecks:      newRechecks[string](ctx),
	}
}

// taintState is what is kept of an eviction from one try to the next.
type taintState struct {
	evictionWait
	// seen is the node as a live read showed it, since when the tolerations count.
	seen *corev1.Node
	// failed is set once the requests have failed.
	failed bool
	// announced is set once the pod has its event.
	announced bool
}

// cancellation is why a pod is not evicted now. At, if set, is when it will be, counting from start.
type cancellation struct {
	reason    cancelReason
	at, start time.Time
}

func (r *cancellation) Error() string { return string(r.reason) }

// errUnwanted stops an eviction that the controller has called off or replaced meanwhile.
var errUnwanted = errors.New("called off")

// Evict implements consistency.EvictionGuard.
func (g *TaintGuard) Evict(ctx context.Context, e consistency.Eviction, due time.Time, wanted func() bool) *consistency.RetryEviction {
	state, ok := e.State.(*taintState)
	if !ok {
		state = &taintState{}
		e.State = state
	}
	view, err := g.view(ctx, e.Node, due)
	if err != nil {
		return g.wait(ctx, e, due, waitUnknown, err)
	}
	if view.untainted() {
		return g.cancel(ctx, e, view, &cancellation{reason: cancelNotTainted}, wanted)
	}
	var check *nodeCheck
	if !view.live && view.node != nil {
		check = g.checks.begin(e.Node, g.gate.busy())
	}
	flight, err := g.gate.enter(ctx, state.failed)
	if err != nil {
		return g.wait(ctx, e, due, waitFailed, err)
	}
	defer flight.leave()
	if !wanted() {
		state.end(g.evictionWaits)
		return nil
	}
	tries := deletions
	if state.failed {
		tries = 1
	}
	var unknown error
	ahead := g.ahead(ctx, view, e.Node, due)
	err = g.evictor.EvictPod(flight.context(ctx), e.Pod, state.dueSince(due), tries, func(pod *corev1.Pod) error {
		flight.to(aside)
		defer flight.to(atLimiter)
		switch {
		case !view.live && view.node != nil && g.checks.refutes(ctx, check, view.node):
			view, unknown = g.view(ctx, e.Node, due)
		case view.old():
			if view, unknown = ahead(); unknown == nil {
				ahead = g.ahead(ctx, view, e.Node, due)
			}
		}
		if unknown != nil {
			return unknown
		}
		if cancelled := g.judge(ctx, e, state, view, pod); cancelled != nil {
			return cancelled
		}
		if !wanted() {
			return errUnwanted
		}
		if !state.announced {
			state.announced = true
			g.gate.afterwards(func() { g.evictor.Evicting(e.Pod) })
		}
		return nil
	})
	var cancelled *cancellation
	switch {
	case err == nil, errors.Is(err, errUnwanted), apierrors.IsNotFound(err):
		state.end(g.evictionWaits)
		return nil
	case unknown != nil:
		return g.wait(ctx, e, due, waitUnknown, unknown)
	case errors.As(err, &cancelled):
		return g.cancel(ctx, e, view, cancelled, wanted)
	}
	state.failed = true
	return g.wait(ctx, e, due, waitFailed, err)
}

// recent is due, unless that is long ago: the process may have been stopped meanwhile.
func recent(due time.Time, age time.Duration) time.Time {
	if oldest := time.Now().Add(-age); due.Before(oldest) {
		return oldest
	}
	return due
}

// judge returns nil if the pod is to be evicted now.
func (g *TaintGuard) judge(ctx context.Context, e consistency.Eviction, state *taintState, view nodeView, pod *corev1.Pod) *cancellation {
	if pod.UID != e.UID || pod.Spec.NodeName != e.Node {
		return &cancellation{reason: cancelReplaced}
	}
	switch {
	case view.untainted():
		return &cancellation{reason: cancelNotTainted}
	case view.node == nil:
		return nil // as on stock: who owns the pod replaces it once it is deleted
	}
	tolerated := g.evictor.Tolerated(ctx, pod, noExecute(view.node))
	switch {
	case tolerated == 0:
		return nil
	case tolerated < 0:
		return &cancellation{reason: cancelTolerated}
	}
	start := g.start(e, state, view)
	if at := start.Add(tolerated); at.After(time.Now()) {
		return &cancellation{reason: cancelTooEarly, at: at, start: start}
	}
	return nil
}

// start is since when the tolerations count: as upstream has it, since the controller saw the node
// tainted, or since a list showed it other taints than before. What it saw through the cache ends where
// a live read shows a node whose taints may have come later: then they count from that read.
func (g *TaintGuard) start(e consistency.Eviction, state *taintState, view nodeView) time.Time {
	seen := g.relists.after(e.Node, e.Start)
	if !view.live {
		return seen
	}
	before := state.seen
	if before == nil {
		before, _ = g.evictor.CachedNode(e.Node)
	}
	known := before != nil && sameTaints(before, view.node, state.seen != nil)
	state.seen = view.node
	if known {
		return seen
	}
	return view.at
}

// cancel calls the eviction off, or puts it off until it is due by what is known now.
func (g *TaintGuard) cancel(ctx context.Context, e consistency.Eviction, view nodeView, r *cancellation, wanted func() bool) *consistency.RetryEviction {
	state := e.State.(*taintState)
	state.end(g.evictionWaits)
	if !wanted() {
		return nil
	}
	metrics.CancelledEvictions(g.Controller, string(r.reason), 1)
	logger := klog.FromContext(ctx)
	if r.reason == cancelTooEarly {
		logger.Info("Put off an eviction: the pod tolerates the taints for longer", "controller", g.Controller, "pod", e.Pod, "node", e.Node, "until", r.at, "basis", view)
		e.Start = r.start
		return &consistency.RetryEviction{At: r.at, Eviction: e, Cancelled: func() { state.end(g.evictionWaits) }}
	}
	logger.Info("Cancelled an eviction that the server's state does not justify", "controller", g.Controller, "pod", e.Pod, "node", e.Node, "reason", r.reason, "basis", view)
	if r.reason == cancelReplaced {
		return nil // the controller schedules the new pod when it sees it, in place of this one
	}
	g.evictor.Cancelled(e.Pod)
	if view.live {
		g.rechecks.add(e.Node, func(ctx context.Context, asOf time.Time) bool {
			return g.checks.settled(e.Node) && g.Prove(ctx, nodesResource, asOf).Fresh()
		}, func() { g.evictor.Recheck(e.Node) })
	}
	return nil
}

// wait puts off an eviction of which nothing can be known, or whose requests failed.
func (g *TaintGuard) wait(ctx context.Context, e consistency.Eviction, due time.Time, cause waitCause, why error) *consistency.RetryEviction {
	state := e.State.(*taintState)
	if ctx.Err() != nil {
		state.end(g.evictionWaits)
		return nil
	}
	metrics.EvictionWaits(g.Controller, string(cause), 1)
	awaits := "a proof of the nodes, or a live read of its node, that shows the taint"
	if cause == waitFailed {
		awaits = "the apiserver to accept the eviction"
	}
	refused := cause == waitFailed && isRefusal(why)
	delay, first, tell := state.again(g.evictionWaits, livereads.PutOff{Object: e.Pod.String(), Resource: nodesResource, For: awaits, Why: why.Error()}, due, refused, retryAfter(why))
	at, callOff := wholeSecond(time.Now().Add(delay)), func() { state.end(g.evictionWaits) }
	if asked := retryAfter(why); asked > 0 && asked == delay {
		at = at.Add(time.Second) // A whole second is rounded down, and the server asks to wait for all of it.
	}
	if refused {
		turn, free := g.refused.turn(time.Now().Add(delay))
		at, callOff = turn, func() { free(); state.end(g.evictionWaits) }
	}
	if first {
		klog.FromContext(ctx).Info("Put off an eviction that could not be verified or carried out", "controller", g.Controller, "pod", e.Pod, "node", e.Node, "cause", cause, "why", why.Error())
	}
	if tell {
		g.Report(e.Pod, e.UID, fmt.Sprintf("Eviction for a taint of node %s has been due for %s and is put off: %s",
			e.Node, time.Since(state.dueSince(due)).Round(time.Second), why))
	}
	return &consistency.RetryEviction{At: at, Eviction: e, Cancelled: callOff}
}

// wholeSecond is the beginning of t's second, so that evictions that wait together are tried together and share
// their requests. Unlike Truncate it keeps the monotonic clock, which never goes back.
func wholeSecond(t time.Time) time.Time { return t.Add(-time.Duration(t.Nanosecond())) }

// retryAfter is how long the server wants to be left alone.
func retryAfter(err error) time.Duration {
	var unknown *unknownError
	if errors.As(err, &unknown) && unknown.proof.RetryAfter > 0 {
		return unknown.proof.RetryAfter
	}
	return livereads.RetryAfter(err)
}
