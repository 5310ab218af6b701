// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"context"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
)

// DevicePool names a pool of devices.
type DevicePool struct {
	Driver, Pool string
}

// DeviceEviction is the deletion of a pod because of the taints of its devices.
type DeviceEviction struct {
	Pod types.NamespacedName
	UID types.UID
	Due time.Time
	// Claims are the pod's, by name; Rules, by name, and Pools are where the taints come from.
	Claims, Rules []string
	Pools         []DevicePool
}

// SameSources reports whether the taints of both evictions come from the same rules and pools.
func (e DeviceEviction) SameSources(other DeviceEviction) bool {
	return slices.Equal(e.Rules, other.Rules) && slices.Equal(e.Pools, other.Pools)
}

// DeviceTaints are the objects that a DeviceEviction stems from, as far as they exist.
type DeviceTaints struct {
	Claims []*resourceapi.ResourceClaim
	Rules  []*resourceapi.DeviceTaintRule
	Slices []*resourceapi.ResourceSlice
}

// DeviceDecision on an eviction that is due: Evict, or look at it Again, or neither: it is cancelled.
type DeviceDecision struct {
	Evict bool
	Again time.Duration
}

// DeviceEvictionGuard decides on evictions when they are due.
type DeviceEvictionGuard interface {
	Judge(ctx context.Context, eviction DeviceEviction) DeviceDecision
	// CalledOff says that the controller has called off what it may have asked about.
	CalledOff(pod types.UID)
}

// DeviceEvictor is what a controller hands to its guard.
type DeviceEvictor struct {
	Client clientset.Interface
	Claims resourcelisters.ResourceClaimLister
	Rules  resourcelisters.DeviceTaintRuleLister // nil: the controller follows no rules
	Slices resourcelisters.ResourceSliceLister
	// EvictionTime is when the objects call for the eviction of the pod, if they do.
	EvictionTime func(eviction DeviceEviction, taints DeviceTaints) (when time.Time, ok bool)
	// Recheck looks at the pod, as at an event of it.
	Recheck func(eviction DeviceEviction)
}

// DeviceEvictionGuardStore is optionally implemented by a provider's store.
type DeviceEvictionGuardStore interface {
	// GuardDeviceEvictions returns a guard that works until ctx ends, or nil.
	GuardDeviceEvictions(ctx context.Context, evictor DeviceEvictor) DeviceEvictionGuard
}

// GuardDeviceEvictions returns the store's guard, or nil if the store has none.
func GuardDeviceEvictions(ctx context.Context, store ConsistencyStore, evictor DeviceEvictor) DeviceEvictionGuard {
	if s, ok := store.(DeviceEvictionGuardStore); ok {
		return s.GuardDeviceEvictions(ctx, evictor)
	}
	return nil
}
