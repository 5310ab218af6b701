// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"
)

// relistedTaints knows since when nodes have had the taints that a list has shown in the place of others. A watch shows
// that a taint was taken off before it came back; a list that replaces the cache shows but a taint of another time.
// A taint that is changed in place, as node lifecycle does after a change of leaders, has been there all the time.
type relistedTaints struct {
	nodes cache.Store

	mu sync.Mutex
	// before are the tainted nodes as the cache had them before the list that replaces it now; nil if none does.
	before map[string]*corev1.Node
	// since has, of nodes none of whose taints was there before a list, when that list came.
	since map[string]time.Time
}

// FollowRelists has the guard learn from the nodes' informer which taints came with a list. It must be called before that is
// started. Without it, and with a store that does not tell of lists, tolerations count as upstream has it.
func (g *TaintGuard) FollowRelists(nodes cache.Store) {
	observed, ok := nodes.(cache.ResourceVersionObservable)
	if !ok {
		return
	}
	r := &relistedTaints{nodes: nodes, since: map[string]time.Time{}}
	observed.AddReplaceObserver(func(string) { r.replacing() })
	observed.AddResourceVersionObserver(func(string) { r.moved() })
	g.relists = r
}

// replacing notes the taints of all nodes before a list comes.
func (r *relistedTaints) replacing() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = map[string]*corev1.Node{}
	for _, object := range r.nodes.List() {
		if node, ok := object.(*corev1.Node); ok && len(noExecute(node)) > 0 {
			r.before[node.Name] = node
		}
	}
}

// moved compares what a list has brought.
func (r *relistedTaints) moved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.before == nil {
		return
	}
	since := map[string]time.Time{}
	for name, before := range r.before {
		object, exists, err := r.nodes.GetByKey(name)
		node, ok := object.(*corev1.Node)
		if err != nil || !exists || !ok || len(noExecute(node)) == 0 {
			continue // The controller gets an event for that.
		}
		if at, again := r.since[name]; again {
			since[name] = at
		}
		if !keptTaint(before, node) {
			since[name] = time.Now()
		}
	}
	r.before, r.since = nil, since
}

// keptTaint reports whether a NoExecute taint of the node is there still, with its time.
func keptTaint(before, after *corev1.Node) bool {
	old := noExecute(before)
	return before.UID == after.UID && slices.ContainsFunc(noExecute(after), func(taint corev1.Taint) bool {
		return slices.ContainsFunc(old, func(t corev1.Taint) bool { return apiequality.Semantic.DeepEqual(t, taint) })
	})
}

// after returns start, or when a list showed other taints of the node than before if that was later.
func (r *relistedTaints) after(node string, start time.Time) time.Time {
	if r == nil {
		return start
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.since[node]; at.After(start) {
		return at
	}
	return start
}
