// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// WatchSeconds is timeoutSeconds of a quiet proof's watch: the shortest for which kube-apiserver sends a bookmark before it ends the watch.
const WatchSeconds = 3

const (
	// budgetWait is how long a request may wait for the budget.
	budgetWait = time.Second
	// passWait is how long the prover waits for a busy cache to pass a fence before it tries a quiet proof,
	// and to catch up before it calls the cache stale.
	passWait = 250 * time.Millisecond
)

// Options of a Prover. Only Config is required.
type Options struct {
	// Config reaches the server. It is copied; its rate limiter and timeout are not used.
	Config *rest.Config
	// Metrics defaults to none.
	Metrics Metrics

	// QPS and Burst are the budget of requests; default 20 and 40, enough for a fence of
	// 60 resources every 5 s and as much again. A list proof takes one for each page.
	QPS   float64
	Burst int
	// RequestTimeout bounds each fence and each page of a list; default 10 s. A built-in resource that needs longer
	// gets up to four times as much.
	RequestTimeout time.Duration
	// SmallCollection is the largest number of objects in a cache for which the quiet proof is a list;
	// default 500, negative for never.
	SmallCollection int

	// Namespaced says whether a resource is namespaced, and whether that is known. If it is known, a fence
	// of a collection that is not empty asks for no object: the answer has some hundred bytes however
	// large the metadata are. Otherwise a fence brings one object.
	Namespaced func(resource schema.GroupVersionResource) (namespaced, known bool)
}

func (o Options) withDefaults() Options {
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	if o.QPS <= 0 {
		o.QPS = 20
	}
	if o.Burst <= 0 {
		o.Burst = 40
	}
	if o.SmallCollection == 0 {
		o.SmallCollection = 500
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = 10 * time.Second
	}
	return o
}

// Metrics receives what the prover counts. Methods may be called concurrently and
// must not call the prover.
type Metrics interface {
	// Fence, List and Watch: a fence, or the list or the watch of a quiet proof, has ended after latency.
	Fence(resource schema.GroupVersionResource, latency time.Duration)
	List(resource schema.GroupVersionResource, latency time.Duration)
	Watch(resource schema.GroupVersionResource, latency time.Duration)
	// Bytes were read of a response's body, of a list or a watch.
	Bytes(resource schema.GroupVersionResource, n int)
	// Rewind: the server's RVs went backward.
	Rewind(resource schema.GroupVersionResource)
}

// noMetrics counts nothing.
type noMetrics struct{}

func (noMetrics) Fence(schema.GroupVersionResource, time.Duration) {}
func (noMetrics) List(schema.GroupVersionResource, time.Duration)  {}
func (noMetrics) Watch(schema.GroupVersionResource, time.Duration) {}
func (noMetrics) Bytes(schema.GroupVersionResource, int)           {}
func (noMetrics) Rewind(schema.GroupVersionResource)               {}
