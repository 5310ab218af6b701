// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// leaveEvery is the least time between two times that a connection is left. It doubles up to maxLeaveEvery while nothing is answered.
	leaveEvery    = 5 * time.Second
	maxLeaveEvery = time.Minute
)

// connection is what the requests by the present connection have shown of the apiserver behind it. It may have lost its member of etcd, or reject
// all that it is asked, while another one behind the same balancer serves the rest of this process. Whether it does is not asked: a process that leads
// has renewed its lease by another connection a moment ago, and where no apiserver answers a new connection costs little.
type connection struct {
	// lost counts the requests for built-in resources that were lost since one of any resource succeeded, and the first of them was sent at first.
	lost  int
	first time.Time
	// before is how many requests had been sent when the connection before was left.
	before uint64
	// next is when this one may be left, and every the pause until then.
	next  time.Time
	every time.Duration
}

func (c *connection) succeeded() { c.lost, c.every = 0, 0 }

// failed notes that a request of those that all have sent was lost. succeeded is when the last one did. It returns true if the connection should
// be left.
func (c *connection) failed(seq, all uint64, sent, now, succeeded time.Time) (leave bool) {
	if seq <= c.before {
		return false
	}
	if c.lost++; c.lost == 1 || sent.Before(c.first) {
		c.first = sent
	}
	if c.lost < 2 || now.Sub(c.first) < serving || now.Sub(succeeded) < serving || now.Before(c.next) {
		return false
	}
	c.every = min(max(2*c.every, leaveEvery), maxLeaveEvery)
	c.lost, c.before, c.next = 0, all, now.Add(c.every)
	return true
}

// lost reports that there was no answer, or one that another apiserver might not give.
func (f *failure) lost() bool {
	switch f.reason {
	case ReasonNoServer, ReasonTimeout, reasonThrottled, reasonTooLargeRV, reasonServerError:
		return true
	}
	return false
}

// connect has the requests from now on go by a new connection, unless Config.Transport is set: client-go makes a transport for each client
// that has a Dial. Requests that are under way go on by the connection before.
func (c *client) connect() error {
	made, err := rest.RESTClientFor(c.config)
	if err != nil {
		return fmt.Errorf("making the client for fences: %w", err)
	}
	c.rest.Store(made)
	return nil
}

// leave connects anew, after a request that failed by f.
func (c *client) leave(ctx context.Context, f *failure) {
	logger := klog.FromContext(ctx)
	if err := c.connect(); err != nil {
		logger.Error(err, "The connection for proofs answers nothing, and there is no new one", "last", f.err)
		return
	}
	logger.Info("The connection for proofs answers nothing; proofs are asked for by a new one", "last", f.err)
}
