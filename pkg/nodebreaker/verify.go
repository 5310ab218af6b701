// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package nodebreaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

// nodeReads is how many workers may wait for a live read of a node: half of those of a pass, so that the
// pass goes on.
const nodeReads = 4

var errBusy = errors.New("the cache of nodes is not proven fresh, and enough nodes are being read one by one")

// proofRetry is how long nodes that could not be proven fresh are not asked about again.
const proofRetry = time.Second

// nodeAge is how old a proof of the nodes, or a live read of one, may be that an action is based on.
const nodeAge = 2 * time.Second

// putOffAge is how old a proof may be of a condition that was asked for before without an answer.
const putOffAge = time.Minute

// Lease returns the lease that a pass judges the node by, how long ago it was renewed, and whether that is
// a heartbeat after the saved one, which is the last that the node was judged by; it has been silent for so
// long. That is the cached lease, as if renewed now, as upstream has it; or while the breaker is open the
// last live one, unless the cached one is later. A node that has been silent for a while makes sure that it
// is not the cache: so a stale cache is found while the node has most of its grace period left, and dead
// nodes are found as fast as with a good cache.
func (n *Nodes) Lease(ctx context.Context, name string, cached, saved *coordv1.Lease, silent time.Duration) (lease *coordv1.Lease, age time.Duration, beats bool) {
	if !newer(saved, cached) && silent > n.suspectAfter() && silent <= n.opts.Grace {
		// The age of a saved lease is at most suspectAfter, so it was seen before this time.
		live, by, err := n.present(ctx, name, saved, time.Now().Add(n.suspectAfter()-silent))
		if err == nil && renewed(saved, live) {
			if by != livereads.ByProof {
				age = n.age(saved, live, silent)
			}
			return live, age, true
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if silent <= n.opts.Grace {
		n.pass.silent = max(n.pass.silent, silent)
	}
	if n.openedAt.IsZero() || n.leases.list == nil {
		return cached, 0, newer(saved, cached)
	}
	lease = cached
	if live := n.leases.list.lease(name); live != nil && !has(cached, live) {
		lease = live
	}
	if !newer(saved, lease) {
		return lease, 0, false
	}
	return lease, n.age(saved, lease, silent), true
}

// suspectAfter is for how long a node may be silent without anybody looking into it: two heartbeats of
// a kubelet, by default.
func (n *Nodes) suspectAfter() time.Duration { return n.opts.Grace * 2 / 5 }

// age is how long ago a lease was renewed, if the one saved was renewed when its node fell silent. A
// stale cache, or a list now and then, shows a heartbeat late, and a node that died soon after it would
// be found dead as late. The node's clock is only compared with itself. If it was set back nothing is
// known of the age; and as it may have been set meanwhile, the node has most of its grace period left in
// any case.
func (n *Nodes) age(saved, lease *coordv1.Lease, silent time.Duration) time.Duration {
	if saved == nil || saved.Spec.RenewTime == nil || lease == nil || lease.Spec.RenewTime == nil {
		return 0
	}
	later := lease.Spec.RenewTime.Sub(saved.Spec.RenewTime.Time)
	if later < 0 {
		return 0
	}
	return min(max(silent-later, 0), n.suspectAfter())
}

// ConfirmDead reports whether a node is dead whose last known heartbeat is saved and whose grace period
// ran out so long ago: whether the server, then or later, had no later heartbeat. If it had one, that is
// returned, with its age, and the node lives. Neither means that it could not be found out: nothing must
// then be done to the node, and it is worth asking again in the next pass.
func (n *Nodes) ConfirmDead(ctx context.Context, name string, saved *coordv1.Lease, overdue time.Duration) (dead bool, lease *coordv1.Lease, age time.Duration) {
	lease, by, err := n.present(ctx, name, saved, time.Now().Add(-overdue))
	outcome := livereads.Confirmed
	n.mu.Lock()
	switch {
	case err != nil:
		outcome = livereads.Inconclusive
		n.pass.inconclusive++
		lease = nil
	case renewed(saved, lease):
		outcome = livereads.Refuted
		if by != livereads.ByProof {
			age = n.age(saved, lease, n.opts.Grace+overdue)
		}
	default:
		dead, lease = true, nil
		n.pass.dead[name] = time.Now()
	}
	n.mu.Unlock()
	livereads.Verified(n.opts.Controller, leasesResource, by, outcome)
	return dead, lease, age
}

// present returns the lease that the server had at asOf or later, nil if none.
func (n *Nodes) present(ctx context.Context, name string, saved *coordv1.Lease, asOf time.Time) (*coordv1.Lease, livereads.Evidence, error) {
	if n.proven(ctx, asOf) {
		// Read after the proof: what was read before may be older.
		return n.opts.Lease(name), livereads.ByProof, nil
	}
	list, err := n.liveLeases(ctx, asOf, n.enough())
	if err == nil {
		live := list.lease(name)
		n.compare(ctx, name, saved, live, list.evidence)
		return live, livereads.ByList, nil
	}
	if !livereads.Forbidden(err) {
		return nil, livereads.ByList, err
	}
	got, err := n.liveLease(ctx, name, asOf)
	if err != nil {
		return nil, livereads.ByGet, err
	}
	if got.lease != nil {
		n.compare(ctx, name, saved, got.lease, evidence{
			at: got.at, leases: map[string]beat{name: beatOf(got.lease)}, resourceVersion: got.lease.ResourceVersion})
	}
	return got.lease, livereads.ByGet, nil
}

// proven reports whether the cache of leases is as new as the server was at asOf. While the breaker is
// open, or once it was not so in a pass, that is not asked.
func (n *Nodes) proven(ctx context.Context, asOf time.Time) bool {
	n.mu.Lock()
	unproven := n.pass.unproven || !n.openedAt.IsZero()
	n.mu.Unlock()
	if unproven {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	if n.opts.Prove(ctx, leasesResource, asOf).Fresh() {
		return true
	}
	n.mu.Lock()
	n.pass.unproven = true
	n.mu.Unlock()
	return false
}

// compare opens the breaker if a live lease, read after the saved one was seen, shows a heartbeat that the
// cache still lacks.
func (n *Nodes) compare(ctx context.Context, name string, saved, live *coordv1.Lease, e evidence) {
	if !renewed(saved, live) || !lacks(saved, n.opts.Lease(name), live) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open(ctx, name, saved, live, e)
}

// nodeRead is the Ready condition of a node on the server; empty if there is no such node or condition.
type nodeRead struct {
	at    time.Time
	ready corev1.ConditionStatus
}

// errChanged: the node is not in the condition any more.
var errChanged = errors.New("the node's Ready condition has changed")

// condition is the Ready condition of a node that something is to be done for.
type condition struct {
	node  string
	ready corev1.ConditionStatus
}

// ProveNode returns nil if the Ready condition of the node is known to have been what the caller saw
// no longer than two seconds ago. Where that could not be found out, the next calls ask for it as of two seconds before the first one, for up to a minute.
// Otherwise nothing must be done because of it now: the error says whether
// the caller's view is outdated, or that it could not be found out. A node that was
// confirmed dead in this pass, no longer than two seconds ago, needs no further proof.
func (n *Nodes) ProveNode(ctx context.Context, name string, seen corev1.ConditionStatus) error {
	n.mu.Lock()
	dead := n.pass.dead[name]
	n.mu.Unlock()
	if time.Since(dead) <= nodeAge && seen == corev1.ConditionUnknown {
		return nil
	}
	c := condition{name, seen}
	asOf := n.asOf(c)
	ready, by, err := n.ready(ctx, name, asOf)
	outcome := livereads.Confirmed
	n.mu.Lock()
	switch {
	case err != nil:
		outcome = livereads.Inconclusive
		n.putOff[c] = asOf
	case ready != seen:
		outcome, err = livereads.Refuted, errChanged
		fallthrough
	default:
		delete(n.putOff, c)
	}
	n.mu.Unlock()
	livereads.Verified(n.opts.Controller, nodesResource, by, outcome)
	return err
}

// asOf is as of when the condition is to be known. The proof that was asked for first is still good: where a server takes longer than the caller waits, each
// further one would come too late, too.
func (n *Nodes) asOf(c condition) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if asOf := n.putOff[c]; time.Since(asOf) <= putOffAge {
		return asOf
	}
	return time.Now().Add(-nodeAge)
}

// ready is the Ready condition that the node had on the server at asOf or later.
func (n *Nodes) ready(ctx context.Context, name string, asOf time.Time) (corev1.ConditionStatus, livereads.Evidence, error) {
	if n.nodesProven(ctx, asOf) {
		return readyOf(n.opts.Node(name)), livereads.ByProof, nil
	}
	n.mu.Lock()
	known, ok := n.nodes[name]
	ok = ok && time.Since(known.at) <= nodeAge
	busy := !ok && n.reading >= nodeReads
	if !ok && !busy {
		n.reading++
		defer func() {
			n.mu.Lock()
			n.reading--
			n.mu.Unlock()
		}()
	}
	n.mu.Unlock()
	switch {
	case ok:
		return known.ready, livereads.ByGet, nil
	case busy:
		return "", livereads.ByGet, errBusy
	}
	var node *corev1.Node
	var got nodeRead
	err := n.opts.Budget.ReadWithin(ctx, n.opts.Controller, nodesResource, readTimeout, readTimeout, func(ctx context.Context) (err error) {
		got.at = time.Now()
		node, err = n.opts.GetNode(ctx, name)
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", livereads.ByGet, fmt.Errorf("the cache of nodes is not proven fresh, and reading node %s: %w", name, err)
	}
	if err == nil {
		got.ready = readyOf(node)
	}
	n.mu.Lock()
	n.nodes[name] = got
	n.mu.Unlock()
	return got.ready, livereads.ByGet, nil
}

// nodesProven reports whether the cache of nodes is as new as the server was at asOf. For a second after it was not
// so that is not asked again: many nodes are asked about one after another.
func (n *Nodes) nodesProven(ctx context.Context, asOf time.Time) bool {
	n.mu.Lock()
	vain := time.Since(n.unproven) < proofRetry
	n.mu.Unlock()
	if vain {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	if n.opts.Prove(ctx, nodesResource, asOf).Fresh() {
		return true
	}
	n.mu.Lock()
	n.unproven = time.Now()
	n.mu.Unlock()
	return false
}

func readyOf(node *corev1.Node) corev1.ConditionStatus {
	if node != nil {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status
			}
		}
	}
	return ""
}
