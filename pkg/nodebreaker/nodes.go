// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package nodebreaker

import (
	"context"
	"sync"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

var (
	leasesResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	nodesResource  = schema.GroupResource{Resource: "nodes"}
)

const (
	// proofTimeout bounds a proof: a fence, time for the cache to pass it, and a quiet proof by watch.
	proofTimeout = 6 * time.Second
	// readTimeout bounds the live read of one object, and again the wait for the budget before it.
	readTimeout = 5 * time.Second
	// refreshWait is how long a pass waits for live reads of an open breaker. They go on after it, and the
	// next pass has them.
	refreshWait = 2 * time.Second
	// reportAfter is how long nothing could be verified before Report is called.
	reportAfter = time.Minute
	// maxSkew is how far the server's clock may differ from ours: within it the age of a new node is not known.
	maxSkew = time.Hour
)

// NodesOptions of Nodes. All but Report are required.
type NodesOptions struct {
	// Controller is the name in the budget and in metrics.
	Controller string
	// Grace is how long a node may be silent before it is taken for dead.
	Grace time.Duration
	// Prove says whether the cache of leases or nodes is as new as the server was at asOf.
	Prove func(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof
	// Reached says whether the cache of leases has passed a resource version.
	Reached func(resourceVersion string) bool
	// Lease and Node read the caches; nil if they have no such object.
	Lease func(name string) *coordv1.Lease
	Node  func(name string) *corev1.Node
	// ListLeases reads a page of kube-node-lease, and GetLease and GetNode one object, from the server.
	ListLeases func(ctx context.Context, opts metav1.ListOptions) (*coordv1.LeaseList, error)
	GetLease   func(ctx context.Context, name string) (*coordv1.Lease, error)
	GetNode    func(ctx context.Context, name string) (*corev1.Node, error)
	// Budget of live reads.
	Budget *livereads.Budget
	// Report is called, once each time, when nothing could be verified for a minute.
	Report func(ctx context.Context, cause string)
}

// Nodes is the breaker of node lifecycle. It is closed while the cache of leases is good enough to act
// on. It opens when the server is shown to have a heartbeat that the cache lacks; silent nodes are then judged
// by a live list of the leases, or not at all if none can be had, until the cache has what the list has. All else
// that a pass does goes on: nodes that post their status are judged by that, as ever. A heartbeat
// is a change of renewTime, forward or back, in a version of the lease that is not known to be older; a
// metadata edit is none. RenewTimes are never compared with a local clock. All methods may be called concurrently, but for BeginPass.
type Nodes struct {
	opts NodesOptions

	mu sync.Mutex
	// openedAt is when the breaker opened; zero while it is closed.
	openedAt time.Time
	// evidence is what the cache must have for the breaker to close.
	evidence evidence
	held     bool
	heldNow  int // passes in a row
	leases   liveLeases
	// refreshing is closed when the refresh that is under way has ended, with refreshed.
	refreshing chan struct{}
	refreshed  error
	nodes      map[string]nodeRead
	reading    int // nodes
	// unproven is when the nodes were last asked to be proven fresh without success.
	unproven time.Time
	// putOff is as of when conditions of nodes are asked for of which nothing could be found out.
	putOff map[condition]time.Time
	pass   passState
	// inconclusiveSince is since when nothing could be verified, and cause why; reported is set once that was
	// told.
	inconclusiveSince time.Time
	cause             string
	reported          bool
}

// evidence is a live read that showed more than the cache, begun at a local time.
type evidence struct {
	at              time.Time
	leases          map[string]beat
	resourceVersion string
}

// passState is forgotten at the beginning of each pass.
type passState struct {
	began time.Time
	// last is when the pass before it began, and due whether a node is to be judged that it did not judge: one whose grace
	// period has run out since, or that could not be verified then.
	last time.Time
	due  bool
	// silent is for how long a node has been silent at most whose grace period has not run out.
	silent time.Duration
	// unproven is set once the leases could not be proven fresh: asking again in the same pass is no use.
	unproven bool
	// enough is closed when the workers of the pass have waited for lists for long enough; nil before they do.
	enough chan struct{}
	// dead are the nodes that were confirmed dead, and when.
	dead map[string]time.Time
	// inconclusive is how many nodes could not be verified.
	inconclusive int
}

// NewNodes returns a closed breaker.
func NewNodes(opts NodesOptions) *Nodes {
	metrics.InitBreaker(opts.Controller)
	livereads.InitVerifications(opts.Controller, leasesResource, nodesResource)
	livereads.InitReads(opts.Controller, leasesResource, nodesResource)
	return &Nodes{opts: opts, pass: passState{dead: map[string]time.Time{}}, nodes: map[string]nodeRead{}, putOff: map[condition]time.Time{}, leases: liveLeases{read: map[string]leaseRead{}}}
}

// FirstProbe is the time from which on a node is judged that never posted its status. It is when we first saw it,
// since its creation timestamp is by the server's clock, which may differ from ours; unless the node is so
// old, or so far in the future, that no difference of clocks explains it.
func (n *Nodes) FirstProbe(created, now metav1.Time) metav1.Time {
	if age := now.Sub(created.Time); age > maxSkew || age < -maxSkew {
		return created
	}
	return now
}

// BeginPass must be called before each pass over all nodes. It reports true: a pass is never held. An open
// breaker is first tried to be closed; if it stays open, the leases are read from the server, unless they just were. The
// pass waits two seconds for that at most, and judges by what there is then.
func (n *Nodes) BeginPass(ctx context.Context) bool {
	n.mu.Lock()
	n.endPass(ctx)
	now := time.Now()
	last := n.pass
	n.pass = passState{began: now, last: last.began, due: last.inconclusive > 0 || last.silent+now.Sub(last.began) > n.opts.Grace, dead: map[string]time.Time{}}
	n.prune(now)
	open := !n.openedAt.IsZero()
	n.mu.Unlock()
	var err error
	if open {
		err = n.revise(ctx)
	}
	n.mu.Lock()
	open = !n.openedAt.IsZero()
	n.mu.Unlock()
	if !open || n.leasesStillGood(time.Now()) {
		err = nil
	}
	n.noteUnverified(ctx, err)
	return true
}

// revise closes the breaker if the cache has caught up, or has the leases read from the server, unless they were read so lately that the wait for
// the next list makes no node suspect, and no node is to be judged. What was read before the last pass does not close it: a cache that lags for no
// longer than that has it, too.
func (n *Nodes) revise(ctx context.Context) error {
	n.mu.Lock()
	e, list, pass := n.evidence, n.leases.list, n.pass
	n.mu.Unlock()
	caughtUp := n.opts.Reached(e.resourceVersion) || n.has(e)
	switch {
	case caughtUp && !e.at.Before(pass.last):
		n.closed(ctx)
		return nil
	case !caughtUp && !pass.due && list != nil && time.Since(list.at) < n.suspectAfter()/2:
		return nil
	}
	err := n.refresh(ctx)
	if err != nil && caughtUp {
		n.closed(ctx) // It has all that is known.
		return nil
	}
	return err
}

// refresh has the leases read from the server, or the breaker closed by a proof if they cannot be. That goes
// on when the pass does not wait for it any longer.
func (n *Nodes) refresh(ctx context.Context) error {
	n.mu.Lock()
	if n.refreshing == nil {
		done := make(chan struct{})
		n.refreshing = done
		asOf := time.Now()
		go func() {
			defer close(done)
			_, err := n.liveLeases(ctx, asOf, nil)
			if err != nil && !n.leasesStillGood(time.Now()) && n.proveClosed(ctx) {
				err = nil
			}
			n.mu.Lock()
			n.refreshing, n.refreshed = nil, err
			n.mu.Unlock()
		}()
	}
	refreshing := n.refreshing
	n.mu.Unlock()
	timer := time.NewTimer(refreshWait)
	defer timer.Stop()
	select {
	case <-refreshing:
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.refreshed
	case <-timer.C:
		return errReading
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enough returns the channel that ends the waiting of this pass's workers for lists.
func (n *Nodes) enough() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pass.enough == nil {
		enough := make(chan struct{})
		n.pass.enough = enough
		time.AfterFunc(refreshWait, func() { close(enough) })
	}
	return n.pass.enough
}

// endPass looks back at the pass that has ended. The mutex is held.
func (n *Nodes) endPass(ctx context.Context) {
	if n.pass.inconclusive == 0 {
		if !n.held {
			n.inconclusiveSince, n.reported = time.Time{}, false
		}
		return
	}
	klog.FromContext(ctx).V(2).Info("The last pass could not verify nodes; they keep their Ready condition", "nodes", n.pass.inconclusive)
	n.waits(ctx, "the cache of leases is not proven fresh, and live reads of the leases failed")
}

// waits notes that nothing could be verified, and tells it after a minute. The mutex is held.
func (n *Nodes) waits(ctx context.Context, cause string) {
	now := time.Now()
	if n.inconclusiveSince.IsZero() {
		n.inconclusiveSince = n.pass.began
	}
	n.cause = cause
	if n.reported || now.Sub(n.inconclusiveSince) < reportAfter {
		return
	}
	n.reported = true
	klog.FromContext(ctx).Info("Node health could not be verified for over a minute; no node is marked Unknown", "for", now.Sub(n.inconclusiveSince), "cause", cause)
	if n.opts.Report != nil {
		go n.opts.Report(ctx, cause)
	}
}

// Waits returns what is put off now because it cannot be verified: the marking of silent nodes.
func (n *Nodes) Waits() []livereads.PutOff {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.inconclusiveSince.IsZero() {
		return nil
	}
	return []livereads.PutOff{{Object: "silent nodes", Resource: leasesResource, For: "a proof that the leases are fresh, or a live read of them", Why: n.cause, Since: n.inconclusiveSince}}
}

// noteUnverified notes whether silent nodes cannot be judged in this pass, and says so when that changes.
func (n *Nodes) noteUnverified(ctx context.Context, cause error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	logger := klog.FromContext(ctx)
	if cause != nil {
		metrics.HeldPass(n.opts.Controller)
		if !n.held {
			logger.Info("The cache of leases is stale and live reads of the leases fail; no node is marked Unknown", "cause", cause.Error())
		}
		n.held = true
		n.heldNow++
		n.waits(ctx, cause.Error())
		return
	}
	if n.held {
		logger.Info("Node health is verified again", "passes", n.heldNow)
	}
	n.held, n.heldNow = false, 0
}

// prune forgets what is not needed any more. The mutex is held.
func (n *Nodes) prune(now time.Time) {
	if n.openedAt.IsZero() && !n.leases.good(n.opts.Grace, now) {
		n.leases.list = nil
	}
	for name, r := range n.leases.read {
		if now.Sub(r.at) > n.opts.Grace {
			delete(n.leases.read, name)
		}
	}
	for name, r := range n.nodes {
		if now.Sub(r.at) > nodeAge {
			delete(n.nodes, name)
		}
	}
	for c, asOf := range n.putOff {
		if now.Sub(asOf) > putOffAge || readyOf(n.opts.Node(c.node)) != c.ready {
			delete(n.putOff, c)
		}
	}
}

// open opens the breaker, or adds nothing if it is open: a live read has shown more than the cache. The
// mutex is held.
func (n *Nodes) open(ctx context.Context, name string, saved, live *coordv1.Lease, e evidence) {
	n.evidence = e
	if !n.openedAt.IsZero() {
		return
	}
	n.openedAt = time.Now()
	metrics.BreakerOpened(n.opts.Controller)
	klog.FromContext(ctx).Info("The cache of leases is stale; the breaker opens, and live reads decide on nodes",
		"node", klog.KRef("", name), "cachedRenewTime", renewTime(saved), "liveRenewTime", renewTime(live), "liveResourceVersion", e.resourceVersion)
}

// proveClosed closes the breaker if the cache is proven fresh now.
func (n *Nodes) proveClosed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	if !n.opts.Prove(ctx, leasesResource, time.Now().Add(-nodeAge)).Fresh() {
		return false
	}
	n.closed(ctx)
	return true
}

// has reports whether the cache has every heartbeat of the evidence, also after resource versions went
// backward, when they prove nothing.
func (n *Nodes) has(e evidence) bool {
	for name, live := range e.leases {
		if !has(n.opts.Lease(name), live.lease(name)) {
			return false
		}
	}
	return true
}

func (n *Nodes) closed(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.openedAt.IsZero() {
		return
	}
	metrics.BreakerClosed(n.opts.Controller)
	klog.FromContext(ctx).Info("The cache of leases has caught up; the breaker closes", "open", time.Since(n.openedAt))
	n.openedAt, n.evidence = time.Time{}, evidence{}
}
