// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// StaleCacheReason is the reason of the Warning event on an object that has waited for more than a
// minute because a cache is stale.
const StaleCacheReason = "StaleCache"

// kinds are the kinds of the controllers' owners, by the names under which the seam asks for stores.
var kinds = map[string]schema.GroupVersionKind{
	"daemonset":               {Group: "apps", Version: "v1", Kind: "DaemonSet"},
	"horizontalpodautoscaler": {Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	"job":                     {Group: "batch", Version: "v1", Kind: "Job"},
	"replicaset":              {Group: "apps", Version: "v1", Kind: "ReplicaSet"},
	"replicationcontroller":   {Version: "v1", Kind: "ReplicationController"},
	"statefulset":             {Group: "apps", Version: "v1", Kind: "StatefulSet"},
}

// Reporter records on an object, and in the log unless enough others are there, for what it waits (gap 18).
type Reporter struct {
	events record.EventRecorder
}

// NewReporter returns a Reporter that records events with events; nil: it only logs.
func NewReporter(events record.EventRecorder) *Reporter { return &Reporter{events: events} }

// Report reports an owner that has waited for more than a minute, and what it awaits.
func (r *Reporter) Report(ctx context.Context, w rvtracker.Wait, awaits string) {
	if r == nil {
		return
	}
	waited := time.Since(w.Since).Round(time.Second)
	cause := "no consistent read has shown whether the cache is stale"
	if w.ProvenStale {
		cause = "a consistent read confirmed that the cache is stale"
	}
	logger := klog.FromContext(ctx)
	if w.Further {
		logger = logger.V(4)
	}
	logger.Info("An object is not reconciled because a cache has not caught up", "controller", w.Controller, "owner", w.Owner,
		"cause", cause, "resource", w.Resource, "seen", w.SeenRV, "awaits", awaits, "waited", waited)
	kind, ok := kinds[w.Controller]
	if !ok || r.events == nil {
		return
	}
	version, name := kind.ToAPIVersionAndKind()
	object := &corev1.ObjectReference{APIVersion: version, Kind: name, Namespace: w.Owner.Namespace, Name: w.Owner.Name, UID: w.OwnerUID}
	r.events.Eventf(object, corev1.EventTypeWarning, StaleCacheReason, "Not reconciled for %s: the controller's cache of %s is at resource version %q and waits for %s; %s",
		waited, w.Resource, w.SeenRV, awaits, cause)
}
