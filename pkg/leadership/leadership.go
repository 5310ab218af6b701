// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leadership says how this process holds the lock under which its controllers run. It promises:
//
//   - The time of a renewal is when it was sent, so that a lease is never believed to last longer than others
//     leave the lock alone.
//   - A renewal that failed is none, and a lock that is given up is not held, whether or not the others learn of it.
//   - Leader election does otherwise what it did: each request goes to the lock as it came.
package leadership

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lock is the lock of a term of leadership.
type Lock struct {
	resourcelock.Interface
	// LeaseDuration is how long others leave the lock alone after it was last renewed.
	LeaseDuration time.Duration

	renewed atomic.Pointer[time.Time]
}

// Renewed returns when the last renewal that succeeded was sent, or the zero time if the lock is not held.
// It never waits.
func (l *Lock) Renewed() time.Time {
	if t := l.renewed.Load(); t != nil {
		return *t
	}
	return time.Time{}
}

// Create implements resourcelock.Interface.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.observe(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.observe(ctx, record, l.Interface.Update)
}

func (l *Lock) observe(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	sent := time.Now()
	if record.HolderIdentity != l.Identity() {
		l.renewed.Store(nil) // It is given up, whether or not the others learn of it.
		return write(ctx, record)
	}
	err := write(ctx, record)
	if err == nil {
		l.renewed.Store(&sent)
	}
	return err
}

type lockKey struct{}

// From returns the lock under which the context's term runs, or nil without leader election.
func From(ctx context.Context) *Lock {
	l, _ := ctx.Value(lockKey{}).(*Lock)
	return l
}

// Observe has the term that config is for run with its lock in the context.
func Observe(config leaderelection.LeaderElectionConfig) leaderelection.LeaderElectionConfig {
	l := &Lock{Interface: config.Lock, LeaseDuration: config.LeaseDuration}
	config.Lock = l
	lead := config.Callbacks.OnStartedLeading
	config.Callbacks.OnStartedLeading = func(ctx context.Context) { lead(context.WithValue(ctx, lockKey{}, l)) }
	return config
}
