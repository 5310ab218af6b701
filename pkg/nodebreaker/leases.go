// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package nodebreaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

const (
	// pageSize of a live list: 15,000 leases are three reads.
	pageSize = 5000
	// pageInterval times the number of pages is the least time from one list to the next, so that there
	// are at most 30 reads a minute, whatever the number of nodes (B5), and one in each pass of 5 s up
	// to 10,000 nodes, so that the dead are found as fast as from a cache. From grace/2 on, that is past
	// 60,000 nodes at 50 s, the budget alone is the limit: a live node must be seen to renew in time.
	pageInterval = 2 * time.Second
)

// liveLeases is what was read from the server last.
type liveLeases struct {
	list *leaseList
	// next is when the next list may be read; until then err is what came of the last attempt.
	next time.Time
	err  error
	// reading is closed when the list that is being read has ended.
	reading chan struct{}
	// refused is set while lists are forbidden.
	refused bool
	// read are leases that were read one by one because lists are refused.
	read map[string]leaseRead
}

// leaseList is a consistent list of kube-node-lease.
type leaseList struct {
	pages int
	evidence
}

// leaseRead is one lease, nil if the server has none.
type leaseRead struct {
	at    time.Time
	lease *coordv1.Lease
}

var (
	errTooSoon = errors.New("the last list of leases was just made; the next is not due yet")
	errReading = errors.New("a list of leases is under way")
)

// interval is the least time from a list of so many pages to the next.
func interval(pages int, grace time.Duration) time.Duration {
	return min(time.Duration(max(pages, 1))*pageInterval, grace/2)
}

// good reports whether there is a list that is not too old to be of use to a pass: the next one may be due, and be
// under way for some time.
func (l *liveLeases) good(grace time.Duration, now time.Time) bool {
	return l.list != nil && now.Sub(l.list.at) < max(2*interval(l.list.pages, grace), grace/2)
}

// leasesStillGood reports whether the last list is one that a pass may judge silent nodes by.
func (n *Nodes) leasesStillGood(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leases.good(n.opts.Grace, now)
}

// lease returns what the list has of a lease, nil if it has none.
func (l *leaseList) lease(name string) *coordv1.Lease {
	if b, ok := l.leases[name]; ok {
		return b.lease(name)
	}
	return nil
}

// liveLeases returns a list begun at asOf, which has passed, or later. One is read at a time, for all who ask;
// it goes on if those do not wait for it any longer, which they do until the context or the channel ends.
func (n *Nodes) liveLeases(ctx context.Context, asOf time.Time, enough <-chan struct{}) (*leaseList, error) {
	for {
		n.mu.Lock()
		l := &n.leases
		if l.list != nil && !l.list.at.Before(asOf) {
			defer n.mu.Unlock()
			return l.list, nil
		}
		if l.reading == nil {
			if time.Now().Before(l.next) {
				err := l.err
				n.mu.Unlock()
				if err == nil {
					err = errTooSoon
				}
				return nil, err
			}
			l.reading = make(chan struct{})
			go n.listLeases(ctx)
		}
		reading := l.reading
		n.mu.Unlock()
		select {
		case <-reading:
		case <-enough:
			return nil, errReading
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// listLeases reads the list for all who wait for it.
func (n *Nodes) listLeases(ctx context.Context) {
	list, err := n.readLeases(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &n.leases
	l.err, l.next = err, list.at.Add(interval(list.pages, n.opts.Grace))
	if err == nil {
		l.list, l.refused = list, false
		if !n.openedAt.IsZero() {
			n.evidence = list.evidence
		}
	} else {
		if wait := time.Now().Add(max(pageInterval, min(livereads.RetryAfter(err), livereads.RefusedHold))); wait.After(l.next) {
			l.next = wait
		}
		if livereads.Forbidden(err) {
			n.refused(ctx, err)
		}
	}
	close(l.reading)
	l.reading = nil
}

// refused notes that lists are forbidden. The mutex is held.
func (n *Nodes) refused(ctx context.Context, err error) {
	n.leases.next = time.Now().Add(livereads.RefusedHold)
	if !n.leases.refused {
		klog.FromContext(ctx).Error(err, "Node lifecycle may not list leases and reads them one by one; grant the node controller list on leases in kube-node-lease", "controller", n.opts.Controller)
	}
	n.leases.refused = true
}

// readLeases reads the whole list, page by page, from the server's present state. With an error, the list
// says how many pages were asked for.
func (n *Nodes) readLeases(ctx context.Context) (*leaseList, error) {
	out := &leaseList{evidence: evidence{at: time.Now(), leases: map[string]beat{}}}
	for opts := (metav1.ListOptions{Limit: pageSize}); ; {
		var page *coordv1.LeaseList
		out.pages++
		err := n.read(ctx, livereads.PageWait, livereads.PageTimeout, func(ctx context.Context) (err error) {
			page, err = n.opts.ListLeases(ctx, opts)
			return err
		})
		if err != nil {
			return out, fmt.Errorf("listing leases: %w", err)
		}
		for i := range page.Items {
			out.leases[page.Items[i].Name] = beatOf(&page.Items[i])
		}
		out.resourceVersion = page.ResourceVersion
		if opts.Continue = page.Continue; opts.Continue == "" {
			return out, nil
		}
	}
}

// read makes one live read of leases. What could not be sent in time is not sent; the timeout is that of the
// request alone.
func (n *Nodes) read(ctx context.Context, wait, timeout time.Duration, read func(context.Context) error) error {
	return n.opts.Budget.ReadWithin(ctx, n.opts.Controller, leasesResource, wait, timeout, read)
}

// liveLease reads one lease, because lists are refused. A lease that was read at asOf or later is not
// read again.
func (n *Nodes) liveLease(ctx context.Context, name string, asOf time.Time) (leaseRead, error) {
	n.mu.Lock()
	known, ok := n.leases.read[name]
	// While the cache is known to be stale, one lease says nothing of the others, and the pass goes on
	// only for those that need no verification. The reads of a pass end when the next one is due.
	open, late := !n.openedAt.IsZero(), time.Since(n.pass.began) > readTimeout
	n.mu.Unlock()
	switch {
	case ok && !known.at.Before(asOf):
		return known, nil
	case open:
		return leaseRead{}, errors.New("the cache of leases is stale and the server refuses to list leases")
	case late:
		return leaseRead{}, errors.New("this pass has no time left for single reads")
	}
	var out leaseRead
	err := n.read(ctx, readTimeout, readTimeout, func(ctx context.Context) (err error) {
		out.at = time.Now()
		out.lease, err = n.opts.GetLease(ctx, name)
		return err
	})
	if apierrors.IsNotFound(err) {
		out.lease, err = nil, nil
	}
	if err != nil {
		return leaseRead{}, fmt.Errorf("reading the lease of %s: %w", name, err)
	}
	n.mu.Lock()
	n.leases.read[name] = out
	n.mu.Unlock()
	return out, nil
}
