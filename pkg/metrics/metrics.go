// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics declares every metric of this project and registers them once, with component-base,
// so that they appear on kube-controller-manager's /metrics beside upstream's. All are ALPHA. Labels
// are bounded: controllers and the resources of their caches, never names or namespaces of objects.
package metrics

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "stale_controller"

// buckets reach from the time a healthy watch takes (1 ms) to that of one noticed by the server only (10 min).
var buckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

var (
	waits = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "waits_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times the controller did not reconcile an object because a cache lacked its own writes, by the first such cache.",
	}, []string{"controller", "group", "resource"})
	waitDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "wait_duration_seconds", StabilityLevel: metrics.ALPHA, Buckets: buckets,
		Help: "How long objects waited to be reconciled, by what ended the wait.",
	}, []string{"controller", "outcome"})
	parkedOwners = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "parked_owners", StabilityLevel: metrics.ALPHA,
		Help: "Number of objects that wait to be reconciled now, by reason.",
	}, []string{"controller", "reason"})
	writeToCache = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "write_to_cache_duration_seconds", StabilityLevel: metrics.ALPHA, Buckets: buckets,
		Help: "Time from the response to a controller's write until its own cache had it (read-your-writes latency).",
	}, []string{"controller", "group", "resource"})
	staleCaches = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "stale_caches_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of waits for which a consistent read confirmed that the cache was stale.",
	}, []string{"controller", "group", "resource"})
	droppedRecords = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "dropped_records_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of write records dropped before the cache showed the write, by reason.",
	}, []string{"controller", "group", "resource", "outcome"})
	unprovenActions = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "unproven_actions_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times the controller put off a disruptive action because the cache was not proven fresh, by outcome of the proof.",
	}, []string{"controller", "group", "resource", "outcome"})
	untrackedWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "untracked_writes_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of writes to resources of which the controller has no cache; no object waits for them.",
	}, []string{"controller"})
	incomparable = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "incomparable_resource_versions_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of resource versions that are not numbers and cannot be compared, by origin. Objects do not wait for writes with such versions.",
	}, []string{"group", "resource", "origin"})
	regressions = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "cache_regressions_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times an informer's cache went back to an older resource version.",
	}, []string{"group", "resource"})
	rewinds = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "rewinds_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times a consistent read proved that the server's resource versions went backward, as after a restore of etcd.",
	}, []string{"group", "resource"})
	relists = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "forced_relists_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of times the process made all its informers relist because resource versions went backward.",
	})
	unsettledWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "unsettled_writes_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of writes whose answer was lost; the object waits until the cache is proven as new as the loss.",
	}, []string{"controller", "group", "resource"})
	recordedWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "recorded_writes_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of writes and deletions that the controller made for objects and that were recorded.",
	}, []string{"controller"})
	unrecordedWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "unrecorded_writes_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of writes that could not be recorded because their path or their answer was not readable; no object waits for them.",
	}, []string{"cause"})
	refusedWrites = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "refused_writes_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of writes that this process did not send because its leader lease had run out.",
	})
	undeclaredWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "undeclared_writes_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of writes that docs/coverage.md does not list, by client and verb. The process sends them nevertheless.",
	}, []string{"client", "verb"})
	refusedDeletions = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "refused_deletions_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of deletions that this process did not send because they lacked the UID or the resource version that docs/coverage.md promises, by client.",
	}, []string{"client"})
	relistProofs = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "relist_proofs_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of proofs of a cache asked for because another cache of the same controller was relisted, by outcome of the proof.",
	}, []string{"group", "resource", "outcome"})
	startProofs = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "start_proofs_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of caches that controllers waited for before they started, by outcome of the proof that they are as new as the start of leadership.",
	}, []string{"group", "resource", "outcome"})
	fences = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "fences_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of consistent reads of a collection's resource version made for waiting objects, by outcome.",
	}, []string{"group", "resource", "outcome"})
)

var register sync.Once

// Register adds the metrics to the process's registry. It may be called more than once.
func Register() {
	register.Do(func() {
		legacyregistry.MustRegister(waits, waitDuration, parkedOwners, writeToCache, staleCaches, droppedRecords,
			refusedWrites, unsettledWrites, recordedWrites, unrecordedWrites, undeclaredWrites, refusedDeletions,
			unprovenActions, untrackedWrites, incomparable, regressions, rewinds, relists, relistProofs, startProofs, fences,
			liveReads, budgetWaits, breakerOpen, breakerTrips, heldPasses, verifications,
			cancelledEvictions, evictionWaits, waitingEvictions,
			stateChanges, probes, probeRequests, probeDuration, probeBytes, stalenessRewinds, endedWatches)
		legacyregistry.CustomMustRegister(cacheCollector, waitCollector)
	})
}

// Parked sets how many owners of a controller wait to be reconciled now, by reason.
func Parked(controller, reason string, owners int) {
	parkedOwners.WithLabelValues(controller, reason).Set(float64(owners))
}

// InitStartProofs makes the series of a cache that controllers wait for exist at zero.
func InitStartProofs(resource schema.GroupResource, outcomes ...string) {
	for _, outcome := range outcomes {
		startProofs.WithLabelValues(resource.Group, resource.Resource, outcome).Add(0)
	}
}

// StartProof counts a cache that controllers waited for before they started, by what was proven of it.
func StartProof(resource schema.GroupResource, outcome string) {
	startProofs.WithLabelValues(resource.Group, resource.Resource, outcome).Inc()
}

// Tracker is what the resource-version tracker counts into.
type Tracker struct{}

// Values are the values of labels that the series of a controller have from the start.
type Values struct {
	// Parked are what owners wait for, Dropped the outcomes of dropped records, and Proofs those of proofs.
	Parked, Dropped, Proofs []string
	// Origins are where versions come from that cannot be compared.
	Origins []string
}

// Init makes the series of a controller and its caches exist at zero, but how long owners wait, and writes take to reach a cache: those have 20 series for each
// outcome or cache, which appear with the first wait or write. Call it after Register.
func (Tracker) Init(controller string, values Values, resources ...schema.GroupResource) {
	for _, reason := range values.Parked {
		Parked(controller, reason, 0)
	}
	untrackedWrites.WithLabelValues(controller).Add(0)
	recordedWrites.WithLabelValues(controller).Add(0)
	for _, cause := range []string{PathUnreadable, AnswerUnreadable} {
		unrecordedWrites.WithLabelValues(cause).Add(0)
	}
	for _, r := range resources {
		waits.WithLabelValues(controller, r.Group, r.Resource).Add(0)
		unsettledWrites.WithLabelValues(controller, r.Group, r.Resource).Add(0)
		staleCaches.WithLabelValues(controller, r.Group, r.Resource).Add(0)
		for _, outcome := range values.Proofs {
			unprovenActions.WithLabelValues(controller, r.Group, r.Resource, outcome).Add(0)
			relistProofs.WithLabelValues(r.Group, r.Resource, outcome).Add(0)
		}
		for _, outcome := range values.Dropped {
			droppedRecords.WithLabelValues(controller, r.Group, r.Resource, outcome).Add(0)
		}
		for _, origin := range values.Origins {
			incomparable.WithLabelValues(r.Group, r.Resource, origin).Add(0)
		}
		regressions.WithLabelValues(r.Group, r.Resource).Add(0)
		rewinds.WithLabelValues(r.Group, r.Resource).Add(0)
		for _, outcome := range []string{fenceOK, fenceError} {
			fences.WithLabelValues(r.Group, r.Resource, outcome).Add(0)
		}
	}
}

// Unproven counts a disruptive action that was put off: its cache was stale, nothing was known of it, or
// it was proven only after the reconcile had read it.
func Unproven(controller string, r schema.GroupResource, outcome string) {
	unprovenActions.WithLabelValues(controller, r.Group, r.Resource, outcome).Inc()
}

// Relisted counts a time that all informers were made to relist.
func Relisted() { relists.Inc() }

// Unsettled counts a write whose outcome is unknown.
func Unsettled(controller string, r schema.GroupResource) {
	unsettledWrites.WithLabelValues(controller, r.Group, r.Resource).Inc()
}

// Why a write could not be recorded: its path names no resource that is known, or its answer no object.
const (
	PathUnreadable   = "path"
	AnswerUnreadable = "answer"
)

// Recorded counts a write that was recorded.
func Recorded(controller string) { recordedWrites.WithLabelValues(controller).Inc() }

// Unrecorded counts a write that could not be recorded.
func Unrecorded(cause string) { unrecordedWrites.WithLabelValues(cause).Inc() }

// Refused counts a write that was not sent for want of the leader lease.
func Refused() { refusedWrites.Inc() }

// Undeclared counts a write that package inventory does not have.
func Undeclared(client, verb string) { undeclaredWrites.WithLabelValues(client, verb).Inc() }

// InitRefusedDeletions makes the series of a client, deletions of which must carry a precondition, exist at zero. Call it after Register.
func InitRefusedDeletions(client string) { refusedDeletions.WithLabelValues(client).Add(0) }

// RefusedDeletion counts a deletion that was not sent because it lacked the precondition that package inventory promises.
func RefusedDeletion(client string) { refusedDeletions.WithLabelValues(client).Inc() }

// WaitStarted implements rvtracker.Metrics.
func (Tracker) WaitStarted(controller string, r schema.GroupResource) {
	waits.WithLabelValues(controller, r.Group, r.Resource).Inc()
}

// WaitEnded implements rvtracker.Metrics.
func (Tracker) WaitEnded(controller string, waited time.Duration, outcome string) {
	waitDuration.WithLabelValues(controller, outcome).Observe(waited.Seconds())
}

// Parked implements rvtracker.Metrics.
func (Tracker) Parked(controller, reason string, owners int) { Parked(controller, reason, owners) }

// WriteToCache implements rvtracker.Metrics.
func (Tracker) WriteToCache(controller string, r schema.GroupResource, latency time.Duration) {
	writeToCache.WithLabelValues(controller, r.Group, r.Resource).Observe(latency.Seconds())
}

// Stale implements rvtracker.Metrics.
func (Tracker) Stale(controller string, r schema.GroupResource) {
	staleCaches.WithLabelValues(controller, r.Group, r.Resource).Inc()
}

// Dropped implements rvtracker.Metrics.
func (Tracker) Dropped(controller string, r schema.GroupResource, outcome string) {
	droppedRecords.WithLabelValues(controller, r.Group, r.Resource, outcome).Inc()
}

// Untracked implements rvtracker.Metrics. The resource is left out: it is not bounded by our caches.
func (Tracker) Untracked(controller string, _ schema.GroupResource) {
	untrackedWrites.WithLabelValues(controller).Inc()
}

// Incomparable implements rvtracker.Metrics.
func (Tracker) Incomparable(r schema.GroupResource, origin string) {
	incomparable.WithLabelValues(r.Group, r.Resource, origin).Inc()
}

// Regression implements rvtracker.Metrics.
func (Tracker) Regression(r schema.GroupResource) {
	regressions.WithLabelValues(r.Group, r.Resource).Inc()
}

// Rewind implements rvtracker.Metrics.
func (Tracker) Rewind(r schema.GroupResource) {
	rewinds.WithLabelValues(r.Group, r.Resource).Inc()
}

// What comes of a consistent read.
const (
	fenceOK    = "OK"
	fenceError = "Error"
)

// Fence implements rvtracker.Metrics.
func (Tracker) Fence(r schema.GroupResource, err error) {
	outcome := fenceOK
	if err != nil {
		outcome = fenceError
	}
	fences.WithLabelValues(r.Group, r.Resource, outcome).Inc()
}

// Forgotten implements rvtracker.Metrics: no series by the resource alone is left, nor one of actions that were put off because of its cache.
func (Tracker) Forgotten(r schema.GroupResource) {
	match := map[string]string{"group": r.Group, "resource": r.Resource}
	incomparable.DeletePartialMatch(match)
	regressions.DeletePartialMatch(match)
	rewinds.DeletePartialMatch(match)
	fences.DeletePartialMatch(match)
	relistProofs.DeletePartialMatch(match)
	unprovenActions.DeletePartialMatch(match)
}

// Proof implements rvtracker.Metrics.
func (Tracker) Proof(r schema.GroupResource, outcome string) {
	relistProofs.WithLabelValues(r.Group, r.Resource, outcome).Inc()
}
