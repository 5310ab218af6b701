// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// State of a cache.
type State string

const (
	// Fresh: the cache has passed the newest fence.
	Fresh State = "fresh"
	// Quiet: nothing happens in the resource, and nothing up to the newest fence is missing.
	Quiet State = "quiet"
	// Lagging: the cache lacks a change that is at least a second old, and moves.
	Lagging State = "lagging"
	// Stalled: the cache lacks a change, and has not moved for a Period.
	Stalled State = "stalled"
	// Unknown: no state can be found, for the Reason given.
	Unknown State = "unknown"
)

// States returns all states.
func States() []State { return []State{Fresh, Quiet, Lagging, Stalled, Unknown} }

// healthy states need no attention.
func (s State) healthy() bool { return s == Fresh || s == Quiet }

// Reasons of a state besides those of freshness.Reason, which say why nothing is known.
const (
	// ReasonWatch: the informer has not received what is missing; the watch or the network delays it.
	ReasonWatch = "Watch"
	// ReasonQueue: the informer has received what is missing; its own processing is behind.
	ReasonQueue = "Queue"
	// ReasonRewind: the server's resource versions went backward and the informer has not relisted.
	ReasonRewind = "Rewind"
	// ReasonNotSynced: the informer has not finished its first list.
	ReasonNotSynced = "NotSynced"
	// ReasonNotProbed: the cache was not probed yet.
	ReasonNotProbed = "NotProbed"
)

// Lag is how far a cache is behind the server, in resource versions, which count the changes to all
// resources. Both are 0 for a cache that is not behind.
type Lag struct {
	// Watch is from what the informer has received to the newest fence.
	Watch uint64
	// Queue is from what the store has to what the informer has received.
	Queue uint64
}

// Handler is how far the event handlers that one package has added to an informer are behind its store: of several, the
// one that is furthest behind.
type Handler struct {
	// Name is that of the package, such as "tainteviction".
	Name string
	// Delivered is the resource version up to which it has received everything; empty before its first list.
	Delivered string
	// Lag is for how long the store has had something that the handler has not received, by samples taken once a second. It is 0 for a
	// handler that is not behind.
	Lag time.Duration
	// Stalled is true for a handler that is behind and has received nothing for a Period.
	Stalled bool
}

// Cache is what is known about one informer's cache at a time.
type Cache struct {
	Resource schema.GroupVersionResource
	// State is that of the last sample, a second before the rest at most if the process keeps up.
	State State
	// Reason of a state that is neither fresh nor quiet.
	Reason string
	// Detail is the error, or what is missing, for people to read.
	Detail string
	// Since is when the state began.
	Since time.Time
	// Proven is the newest time as of which the cache is proven complete; zero if there is none. Age
	// is the time from then to the snapshot: an upper bound of the cache's age.
	Proven time.Time
	Age    time.Duration
	Lag    Lag
	// Stored, Received and Fenced are the resource versions of the store, the watch and the newest
	// fence; empty if not known. What the store lacks at Stored is no older than Age.
	Stored, Received, Fenced string
	// Probed is when the last probe began; zero if there was none.
	Probed time.Time
	// Every is how long after a proof the monitor probes a healthy cache again. Protected is true if a protected
	// controller reads the cache, so that its age has to stay within Bound.
	Every     time.Duration
	Protected bool
	// Handlers are the event handlers of the informer, those that are furthest behind first.
	Handlers []Handler
	// History has the last samples, one in each Period, oldest first.
	History []Sample
}

// Sample is the past of a cache.
type Sample struct {
	State State
	// Age is negative if there was none.
	Age time.Duration
}

// Measured is false for a cache that was not probed yet since its informer started: nothing is known about it.
func (c *Cache) Measured() bool { return c.State != Unknown || c.Reason != ReasonNotProbed }

// Served is false for a resource that the server does not know.
func (c *Cache) Served() bool { return c.State != Unknown || c.Reason != reasonNotFound }
