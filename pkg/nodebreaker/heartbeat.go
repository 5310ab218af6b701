// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package nodebreaker

import (
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// A heartbeat is any change of renewTime, back too: a node whose clock is set back renews its lease all the
// same (kubernetes/kubernetes#113081). As a stale cache also shows another renewTime, the order of two leases is
// told by their resource versions, and where these say nothing by which of them was read later.

// beat is what is kept of a lease of a live list.
type beat struct {
	renewTime       time.Time
	resourceVersion string
}

func beatOf(lease *coordv1.Lease) beat {
	b := beat{resourceVersion: lease.ResourceVersion}
	if lease.Spec.RenewTime != nil {
		b.renewTime = lease.Spec.RenewTime.Time
	}
	return b
}

// lease returns a lease with no more than the beat.
func (b beat) lease(name string) *coordv1.Lease {
	out := &coordv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name, ResourceVersion: b.resourceVersion}}
	if !b.renewTime.IsZero() {
		out.Spec.RenewTime = new(metav1.NewMicroTime(b.renewTime))
	}
	return out
}

// changed reports whether the lease was renewed at another time than the saved one. It does not say which
// of them is older.
func changed(saved, lease *coordv1.Lease) bool {
	if lease == nil || lease.Spec.RenewTime == nil {
		return false
	}
	return saved == nil || saved.Spec.RenewTime == nil || !saved.Spec.RenewTime.Equal(lease.Spec.RenewTime)
}

// older reports whether the lease is known to be an older version than the other. Known is false if the
// resource versions cannot be compared.
func older(lease, than *coordv1.Lease) (older, known bool) {
	c, err := resourceversion.CompareResourceVersion(lease.ResourceVersion, than.ResourceVersion)
	return c < 0, err == nil
}

// newer reports whether a lease, of whatever time, has a heartbeat after the saved one: another renewTime in
// a later version. Versions that cannot be compared leave the renewTimes to decide.
func newer(saved, lease *coordv1.Lease) bool {
	if !changed(saved, lease) {
		return false
	}
	if saved == nil || saved.Spec.RenewTime == nil {
		return true
	}
	if old, known := older(lease, saved); known {
		return !old
	}
	return saved.Spec.RenewTime.Before(lease.Spec.RenewTime)
}

// renewed reports whether a lease that the server had after the saved one was seen has a later heartbeat. It
// has if it differs, unless resource versions went backward and the lease is from before.
func renewed(saved, lease *coordv1.Lease) bool {
	if !changed(saved, lease) {
		return false
	}
	if saved == nil || saved.Spec.RenewTime == nil || saved.Spec.RenewTime.Before(lease.Spec.RenewTime) {
		return true
	}
	old, known := older(lease, saved)
	return !known || !old
}

// lacks reports whether the cached lease lacks the heartbeat of a live one, which was read after the saved
// one was seen.
func lacks(saved, cached, live *coordv1.Lease) bool {
	if newer(cached, live) {
		return true
	}
	// After a rewind the live one has the lower version. A cache that still shows the saved one has not moved since.
	return cached != nil && saved != nil && cached.ResourceVersion == saved.ResourceVersion && renewed(cached, live)
}

// has reports whether the cached lease surely has the heartbeat of a live one, or a later one: also after a
// rewind, when a lower version may be the later one.
func has(cached, live *coordv1.Lease) bool {
	if cached == nil || !changed(cached, live) {
		return cached != nil
	}
	if cached.Spec.RenewTime == nil || cached.Spec.RenewTime.Before(live.Spec.RenewTime) {
		return false
	}
	old, known := older(cached, live)
	return !known || !old
}

func renewTime(lease *coordv1.Lease) string {
	if lease == nil || lease.Spec.RenewTime == nil {
		return "none"
	}
	return lease.Spec.RenewTime.Format(metav1.RFC3339Micro)
}
