// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

const (
	// fewReads is how many nodes are read one by one at a time. While as many wait for the budget, all nodes are
	// listed instead.
	fewReads = 5
	// nodePageSize is that of upstream's reflectors: nodes are large.
	nodePageSize = 500
)

// liveNodes reads nodes from the server: one by one, and all of them by one list, page by page, if many are wanted. So
// evictions from 1,000 nodes whose watch stands still take two reads in place of 1,000, of which the budget allows
// one a second. All methods may be called concurrently.
type liveNodes struct {
	*livereads.Reads[*corev1.Node]
	Options
	ctx  context.Context
	list func(ctx context.Context, opts metav1.ListOptions) (*corev1.NodeList, error)

	lists sync.Mutex
	last  *nodeList
	// refused is until when no list is tried, because the last was forbidden.
	refused    time.Time
	cannotList sync.Once
}

// nodeList is one list of the nodes. What is not set at once is set before done is closed.
type nodeList struct {
	// begun is when the first page was sent: what the list shows is the server's state then or later.
	begun, ended time.Time
	done         chan struct{}
	// nodes have of their metadata and specs what evictions are decided by.
	nodes map[string]*corev1.Node
	err   error
}

// recall returns the node as a read has brought it that was sent at asOf or later, or a list that was begun when the
// eviction was due or later, and has ended so lately that it stands for the server's state. None is nil: the
// server has no such node.
func (l *liveNodes) recall(name string, due, asOf time.Time) (node *corev1.Node, at time.Time, ok bool) {
	if node, at, ok := l.Reads.Recall(name, asOf); ok {
		return node, at, true
	}
	l.lists.Lock()
	last := l.last
	l.lists.Unlock()
	if last == nil || !closed(last.done) || last.err != nil || last.begun.Before(due) || time.Since(last.ended) > livereads.Age {
		return nil, time.Time{}, false
	}
	return last.nodes[name], last.ended, true
}

// get returns the node as the server had it at asOf or later, and when that was read.
func (l *liveNodes) get(ctx context.Context, name string, asOf time.Time) (node *corev1.Node, at time.Time, err error) {
	if l.Wanted() < fewReads || !l.mayList() {
		return l.Reads.Get(ctx, name, asOf)
	}
	list, err := l.listSince(ctx, asOf)
	switch {
	case err != nil && livereads.Forbidden(err):
		return l.Reads.Get(ctx, name, asOf)
	case err != nil:
		return nil, time.Now(), err
	case list.nodes[name] == nil:
		return nil, list.ended, apierrors.NewNotFound(nodesResource, name)
	}
	return list.nodes[name], list.ended, nil
}

func (l *liveNodes) mayList() bool {
	l.lists.Lock()
	defer l.lists.Unlock()
	return time.Now().After(l.refused)
}

// listSince returns a list that was begun at asOf or later. There is one under way at a time, for all who ask.
func (l *liveNodes) listSince(ctx context.Context, asOf time.Time) (*nodeList, error) {
	for {
		l.lists.Lock()
		list := l.last
		if list == nil || closed(list.done) && list.begun.Before(asOf) {
			list = &nodeList{done: make(chan struct{}), nodes: map[string]*corev1.Node{}}
			l.last = list
			go l.fill(list)
		}
		l.lists.Unlock()
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("listing nodes: %w", context.Cause(ctx))
		case <-list.done:
		}
		if !list.begun.Before(asOf) {
			return list, list.err
		}
	}
}

// fill reads the list.
func (l *liveNodes) fill(list *nodeList) {
	defer close(list.done)
	defer func() { list.ended = time.Now() }()
	for opts := (metav1.ListOptions{Limit: nodePageSize}); ; {
		var page *corev1.NodeList
		list.err = l.Budget.ReadWithin(l.ctx, l.Controller, nodesResource, livereads.PageWait, livereads.PageTimeout, func(ctx context.Context) (err error) {
			if list.begun.IsZero() {
				list.begun = time.Now()
			}
			page, err = l.list(ctx, opts)
			return err
		})
		if list.begun.IsZero() {
			list.begun = time.Now() // Nothing was sent: those who asked until now share that.
		}
		if list.err != nil {
			l.failed(list.err)
			return
		}
		for i := range page.Items {
			node := &page.Items[i]
			kept := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion}}
			kept.Spec.Taints, kept.ManagedFields = node.Spec.Taints, slices.DeleteFunc(slices.Clone(node.ManagedFields), func(e metav1.ManagedFieldsEntry) bool { return !ofTaints(e) })
			list.nodes[node.Name] = kept
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			time.AfterFunc(2*livereads.Age, func() { l.forget(list) })
			return
		}
	}
}

// forget drops a list that stands for nothing any more.
func (l *liveNodes) forget(list *nodeList) {
	l.lists.Lock()
	defer l.lists.Unlock()
	if l.last == list {
		l.last = nil
	}
}

func (l *liveNodes) failed(err error) {
	if !livereads.Forbidden(err) {
		return
	}
	l.lists.Lock()
	l.refused = time.Now().Add(livereads.RefusedHold)
	l.lists.Unlock()
	l.cannotList.Do(func() {
		klog.FromContext(l.ctx).Error(err, "The controller may not list nodes and reads them one by one for evictions; apply build/manifests/rbac.yaml", "controller", l.Controller)
	})
}
