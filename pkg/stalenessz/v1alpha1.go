// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessz

import (
	"time"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
)

// Kind and APIVersion of the page's JSON. Within a version fields are only added.
const (
	Kind       = "Stalenessz"
	APIVersion = "stalenessz.fresh-kcm.io/v1alpha1"
)

// Stalenessz is the page's JSON.
type Stalenessz struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	// Time of the answer; all ages are as of it.
	Time time.Time `json:"time"`
	// Leading is false for a process that does not lead: it runs no informers.
	Leading bool `json:"leading"`
	// Gates by name: whether they are on.
	Gates map[string]bool `json:"gates"`
	// Caches, those that need a look first; 1,000 at most, of CachesTotal.
	Caches      []StalenesszCache `json:"caches"`
	CachesTotal int               `json:"cachesTotal"`
	// Waits, the longest first; 1,000 at most, of WaitsTotal.
	Waits      []StalenesszWait `json:"waits"`
	WaitsTotal int              `json:"waitsTotal"`
}

// StalenesszCache is one informer's cache.
type StalenesszCache struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	// State is fresh, quiet, lagging, stalled or unknown, since Since; Reason and Detail are empty for
	// the first two.
	State  stalenessmonitor.State `json:"state"`
	Since  time.Time              `json:"since"`
	Reason string                 `json:"reason,omitempty"`
	Detail string                 `json:"detail,omitempty"`
	// AgeSeconds is the upper bound on the cache's age, LastProof the time from which it counts. Both
	// are absent while nothing is proven.
	AgeSeconds *float64   `json:"ageSeconds,omitempty"`
	LastProof  *time.Time `json:"lastProof,omitempty"`
	// AskedEverySeconds is how long after a proof the monitor asks again, if nothing is amiss. Protected is true
	// if a protected controller reads the cache, so that its age is to stay within 15 s.
	AskedEverySeconds float64 `json:"askedEverySeconds"`
	Protected         bool    `json:"protected"`
	// Lags, in resource versions: what the watch has yet to bring and what waits in the queue.
	WatchLag uint64 `json:"watchLag"`
	QueueLag uint64 `json:"queueLag"`
	// Resource versions of the store, the watch and the newest fence.
	StoreResourceVersion    string `json:"storeResourceVersion,omitempty"`
	ReceivedResourceVersion string `json:"receivedResourceVersion,omitempty"`
	FenceResourceVersion    string `json:"fenceResourceVersion,omitempty"`
	Objects                 int    `json:"objects"`
	// Handlers are the event handlers of the informer, those that are furthest behind its store first.
	Handlers []StalenesszHandler `json:"handlers,omitempty"`
	// AgeHistorySeconds has a sample for each 5 s, oldest first; -1 where nothing was proven.
	AgeHistorySeconds []float64 `json:"ageHistorySeconds,omitempty"`
}

// StalenesszHandler is the event handlers that one package has added to an informer.
type StalenesszHandler struct {
	// Name is that of the package.
	Name string `json:"name"`
	// DeliveredResourceVersion is that up to which the handler was handed everything.
	DeliveredResourceVersion string `json:"deliveredResourceVersion,omitempty"`
	// LagSeconds is for how long the store has had something that the handler was not handed, 0 if there is nothing. Stalled is true if it
	// was handed nothing for 5 s.
	LagSeconds float64 `json:"lagSeconds"`
	Stalled    bool    `json:"stalled"`
}

// StalenesszWait is something that waits for a cache.
type StalenesszWait struct {
	Controller string `json:"controller"`
	// Owner is the object that is not reconciled, or not acted on, as "namespace/name".
	Owner string `json:"owner"`
	// Group and Resource of the cache.
	Group    string `json:"group"`
	Resource string `json:"resource"`
	// Reason is own_writes, relist, rewind, start or unsettled_write, as in stale_controller_parked_owners, or action or unseen_write: what is put off while the rest of the reconcile goes on.
	Reason      string    `json:"reason"`
	For         string    `json:"for"`
	Why         string    `json:"why"`
	Since       time.Time `json:"since"`
	WaitSeconds float64   `json:"waitSeconds"`
}

func (v view) structured() Stalenessz {
	out := Stalenessz{
		Kind: Kind, APIVersion: APIVersion, Time: v.Now, Leading: v.Leading,
		Gates:  map[string]bool{"MonitorInformerStaleness": v.Monitoring, "StaleControllerConsistency": v.Consistency},
		Caches: []StalenesszCache{}, CachesTotal: v.CachesTotal, Waits: []StalenesszWait{}, WaitsTotal: v.WaitsTotal,
	}
	for _, c := range v.Caches {
		s := StalenesszCache{
			Group: c.Resource.Group, Version: c.Resource.Version, Resource: c.Resource.Resource,
			State: c.State, Since: c.Since, Reason: c.Reason, Detail: c.Detail,
			AskedEverySeconds: c.Every.Seconds(), Protected: c.Protected,
			WatchLag: c.Lag.Watch, QueueLag: c.Lag.Queue,
			StoreResourceVersion: c.Stored, ReceivedResourceVersion: c.Received, FenceResourceVersion: c.Fenced, Objects: c.Objects,
		}
		if !c.Proven.IsZero() {
			age, proven := v.Now.Sub(c.Proven).Seconds(), c.Proven
			s.AgeSeconds, s.LastProof = &age, &proven
		}
		for _, h := range c.Handlers {
			s.Handlers = append(s.Handlers, StalenesszHandler{Name: h.Name, DeliveredResourceVersion: h.Delivered, LagSeconds: h.Lag.Seconds(), Stalled: h.Stalled})
		}
		for _, sample := range c.History {
			age := -1.0
			if sample.Age >= 0 {
				age = sample.Age.Seconds()
			}
			s.AgeHistorySeconds = append(s.AgeHistorySeconds, age)
		}
		out.Caches = append(out.Caches, s)
	}
	for _, w := range v.Waits {
		out.Waits = append(out.Waits, StalenesszWait{
			Controller: w.Controller, Owner: w.Owner, Group: w.Resource.Group, Resource: w.Resource.Resource,
			Reason: w.Reason, For: w.For, Why: w.Why, Since: w.Since, WaitSeconds: v.Now.Sub(w.Since).Seconds(),
		})
	}
	return out
}
