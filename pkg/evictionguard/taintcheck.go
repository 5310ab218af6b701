// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

// checkWait is how long after its beginning the check of a node is waited for. Without it a proof decides.
const checkWait = time.Second

// nodeChecks compare tainted nodes in the cache with the server. An informer that lost one event has a
// node wrong for good, and no proof shows it: the resource version of the cache moves on. A check is one
// live read of the node for all of its pods, beside the first request of their evictions. It is made while
// the budget has tokens to spare and no eviction waits to begin, so it is no cost of a zone that dies.
type nodeChecks struct {
	ctx        context.Context
	controller string
	budget     *livereads.Budget
	evictor    Evictor

	mu     sync.Mutex
	checks map[string]*nodeCheck
	// wrong are the resource versions of the cached nodes that the server contradicted.
	wrong map[string]string
}

// nodeCheck is one check. Live is set before done is closed, and nil if nothing is known.
type nodeCheck struct {
	begun time.Time
	done  chan struct{}
	live  *corev1.Node
}

func newNodeChecks(ctx context.Context, o Options, evictor Evictor) *nodeChecks {
	return &nodeChecks{ctx: ctx, controller: o.Controller, budget: o.Budget, evictor: evictor,
		checks: map[string]*nodeCheck{}, wrong: map[string]string{}}
}

// begin has the node checked, unless that would delay other reads; then it returns nil.
func (c *nodeChecks) begin(name string, busy bool) *nodeCheck {
	c.mu.Lock()
	defer c.mu.Unlock()
	if check := c.checks[name]; check != nil && time.Since(check.begun) <= livereads.Age {
		return check
	}
	if busy || !c.budget.Spare() {
		return nil
	}
	for other, check := range c.checks {
		if time.Since(check.begun) > livereads.Age {
			delete(c.checks, other)
		}
	}
	check := &nodeCheck{begun: time.Now(), done: make(chan struct{})}
	c.checks[name] = check
	go func() {
		defer close(check.done)
		ctx, cancel := context.WithTimeout(c.ctx, livereads.Timeout)
		defer cancel()
		_ = c.budget.Read(ctx, c.controller, nodesResource, func(ctx context.Context) error {
			live, err := c.evictor.LiveNode(ctx, name)
			if err == nil {
				check.live = live
			}
			return err
		})
	}()
	return check
}

// refutes reports whether the server contradicts the cached node, which is tainted and proven.
func (c *nodeChecks) refutes(ctx context.Context, check *nodeCheck, cached *corev1.Node) bool {
	if check == nil {
		return false
	}
	if left := checkWait - time.Since(check.begun); left > 0 {
		select {
		case <-check.done:
		case <-time.After(left):
		}
	}
	if !closed(check.done) {
		return false
	}
	live := check.live
	if live == nil || live.UID != cached.UID || freshness.Passed(cached.ResourceVersion, live.ResourceVersion) || len(noExecute(live)) > 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong[cached.Name] != cached.ResourceVersion {
		c.wrong[cached.Name] = cached.ResourceVersion
		klog.FromContext(ctx).Info("The cached node has taints that the server does not have; live reads decide on its evictions until the cached node changes",
			"controller", c.controller, "node", cached.Name, "cached", cached.ResourceVersion, "live", live.ResourceVersion)
	}
	return true
}

// isWrong reports whether the server has contradicted the cached node.
func (c *nodeChecks) isWrong(cached *corev1.Node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	rv, ok := c.wrong[cached.Name]
	if ok && rv != cached.ResourceVersion {
		delete(c.wrong, cached.Name)
	}
	return ok && rv == cached.ResourceVersion
}

// settled reports whether nothing contradicts the node in the cache any more.
func (c *nodeChecks) settled(name string) bool {
	cached, err := c.evictor.CachedNode(name)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.wrong, name)
		return true
	}
	return !c.isWrong(cached)
}
