// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

// nodeView is a node as the server had it at a time or later.
type nodeView struct {
	node *corev1.Node // nil: there is none
	at   time.Time
	live bool // from a live read, not from the cache
	// took is how long the server took for its proof.
	took time.Duration
}

// String is for logs.
func (v nodeView) String() string {
	how := "proven cache"
	if v.live {
		how = "live read"
	}
	if v.node == nil {
		return how + ", no such node"
	}
	return fmt.Sprintf("%s, node at resource version %s", how, v.node.ResourceVersion)
}

// untainted reports whether there is a node that has no taint for which pods are evicted.
func (v nodeView) untainted() bool { return v.node != nil && len(noExecute(v.node)) == 0 }

// old reports whether the view is too old for a deletion that is based on it. Where a proof takes long, another one would be as old once it is there.
func (v nodeView) old() bool {
	age := proofAge + v.took
	if v.live {
		age = livereads.Age
	}
	return time.Since(v.at) > age
}

// unknownError says that neither a proof nor a live read could be had.
type unknownError struct {
	proof freshness.Proof
	err   error
}

func (e *unknownError) Error() string {
	return fmt.Sprintf("the cache is not proven fresh (%s), and a live read gave no answer: %v", e.proof, e.err)
}

func (e *unknownError) Unwrap() error { return e.err }

// view returns the node as it was when the eviction was due or later, and no longer ago than is good for a
// deletion plus the time that it takes to find out: from the cache if that is proven, else from the server.
func (g *TaintGuard) view(ctx context.Context, name string, due time.Time) (nodeView, error) {
	asOf, readAsOf := recent(due, proofAge), recent(due, livereads.Age)
	if node, at, ok := g.nodes.recall(name, due, readAsOf); ok {
		return nodeView{node: node, at: at, live: true}, nil
	}
	asked := time.Now()
	proof := g.Prove(ctx, nodesResource, asOf)
	if proof.Fresh() {
		took := proof.Took(asked)
		node, err := g.evictor.CachedNode(name)
		if err != nil && !apierrors.IsNotFound(err) {
			return nodeView{}, fmt.Errorf("node %s in the cache: %w", name, err)
		}
		view := nodeView{node: node, at: proof.At, took: took}
		if node == nil || view.untainted() || !g.checks.isWrong(node) {
			return view, nil
		}
	}
	node, at, err := g.nodes.get(ctx, name, readAsOf)
	switch {
	case apierrors.IsNotFound(err):
		return nodeView{at: at, live: true}, nil
	case err != nil:
		return nodeView{}, &unknownError{proof: proof, err: err}
	}
	return nodeView{node: node, at: at, live: true}, nil
}

// ahead returns what returns the next view. If this one is by a proof that takes longer than one may be old, as on a server that takes long for each request, the next is
// asked for at once, beside the eviction's next request. A live read is not: it would take one of the budget, and perhaps for nothing.
func (g *TaintGuard) ahead(ctx context.Context, v nodeView, name string, due time.Time) func() (nodeView, error) {
	if v.live || time.Since(v.at) <= proofAge {
		return func() (nodeView, error) { return g.view(ctx, name, due) }
	}
	type result struct {
		view nodeView
		err  error
	}
	next := make(chan result, 1)
	go func() {
		view, err := g.view(ctx, name, due)
		next <- result{view, err}
	}()
	return func() (nodeView, error) {
		r := <-next
		if r.err == nil && r.view.old() {
			return g.view(ctx, name, due)
		}
		return r.view, r.err
	}
}

func noExecute(node *corev1.Node) []corev1.Taint {
	var taints []corev1.Taint
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectNoExecute {
			taints = append(taints, taint)
		}
	}
	return taints
}

// sameTaints reports whether the node has been tainted all the time from before to after. A node that has
// not changed has; so has one with a taint of the same time in both. Taints made by hand have no time:
// of two live reads, whose managed fields the cache does not have, the time of the field's last change
// tells.
func sameTaints(before, after *corev1.Node, live bool) bool {
	if before.UID != after.UID {
		return false
	}
	if before.ResourceVersion == after.ResourceVersion {
		return true
	}
	old := noExecute(before)
	for _, taint := range noExecute(after) {
		if taint.TimeAdded != nil && slices.ContainsFunc(old, func(t corev1.Taint) bool { return apiequality.Semantic.DeepEqual(t, taint) }) {
			return true
		}
	}
	return live && apiequality.Semantic.DeepEqual(old, noExecute(after)) && apiequality.Semantic.DeepEqual(taintWriters(before), taintWriters(after))
}

// taintWriters are who set the node's taints, and when.
func taintWriters(node *corev1.Node) []metav1.ManagedFieldsEntry {
	var writers []metav1.ManagedFieldsEntry
	for _, entry := range node.ManagedFields {
		if ofTaints(entry) {
			writers = append(writers, metav1.ManagedFieldsEntry{Manager: entry.Manager, Operation: entry.Operation, Time: entry.Time})
		}
	}
	return writers
}

func ofTaints(entry metav1.ManagedFieldsEntry) bool {
	return entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:taints"`))
}
