// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// StaleCacheReason is the reason of the Warning event on an object that is not reconciled, or of which an action is put off, for more than
// a minute because a cache may be stale.
const StaleCacheReason = "StaleCache"

// kinds are the kinds of the controllers' owners, by the names under which the seam asks for stores.
var kinds = map[string]schema.GroupVersionKind{
	cronJob:                    {Group: "batch", Version: "v1", Kind: "CronJob"},
	daemonSetStore:             {Group: "apps", Version: "v1", Kind: "DaemonSet"},
	deploymentStore:            {Group: "apps", Version: "v1", Kind: "Deployment"},
	autoscaler:                 {Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	"job":                      {Group: "batch", Version: "v1", Kind: "Job"},
	replicaSetStore:            {Group: "apps", Version: "v1", Kind: "ReplicaSet"},
	replicationControllerStore: {Version: "v1", Kind: "ReplicationController"},
	statefulSetStore:           {Group: "apps", Version: "v1", Kind: "StatefulSet"},
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
	r.event(w.Controller, w.Owner, w.OwnerUID, StaleCacheReason, "Not reconciled for %s: the controller's cache of %s is at resource version %q and waits for %s; %s",
		waited, w.Resource, w.SeenRV, awaits, cause)
}

// putOff reports an action of an owner that was put off for more than a minute. The log has it since it was put off. A value waits under
// the key of its object, so the owner is read from that.
func (r *Reporter) putOff(controller string, owner consistency.Owner, waited time.Duration, resource schema.GroupResource, why string) {
	namespace, name, _ := cache.SplitMetaNamespaceKey(queueKey(owner.Name))
	r.event(controller, types.NamespacedName{Namespace: namespace, Name: name}, owner.UID, StaleCacheReason, "A deletion or another disruptive action has been put off for %s: the controller's cache of %s is not proven fresh: %s",
		waited.Round(time.Second), resource, why)
}

// putOffByServer records that the server asks to wait before a pod of the owner is made or deleted, so many times in a row, as upstream's controllers do once
// the client has given up (pkg/controller/controller_utils.go).
func (r *Reporter) putOffByServer(name string, owner types.NamespacedName, uid types.UID, what transport.Write, times int) {
	if what.Resource != podResource {
		return
	}
	switch what.Method {
	case http.MethodPost:
		r.event(name, owner, uid, controller.FailedCreatePodReason, "Error creating: the server has asked %d times in a row to wait (Retry-After); it is tried again", times)
	case http.MethodDelete:
		r.event(name, owner, uid, controller.FailedDeletePodReason, "Error deleting: the server has asked %d times in a row to wait (Retry-After); it is tried again", times)
	}
}

func (r *Reporter) event(controller string, owner types.NamespacedName, uid types.UID, reason, format string, args ...any) {
	kind, ok := kinds[controller]
	if r == nil || !ok || r.events == nil {
		return
	}
	version, name := kind.ToAPIVersionAndKind()
	object := &corev1.ObjectReference{APIVersion: version, Kind: name, Namespace: owner.Namespace, Name: owner.Name, UID: uid}
	r.events.Eventf(object, corev1.EventTypeWarning, reason, format, args...)
}
