// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Pass is one look of a controller at all objects.
type Pass interface {
	// Prove is ProveFresh for one kind of action of the pass, which action names. An action that is refused leaves
	// the others alone, and the store has a pass made early when it may be worth trying again.
	Prove(ctx context.Context, action string, resources ...schema.GroupResource) error
}

// What follows is optionally implemented by a provider's store.
type (
	// PassStore has passes made; see Passes.
	PassStore interface {
		Passes(ctx context.Context, pass func(context.Context), period time.Duration)
	}
	// KnowingStore reports whether it can tell what is fresh.
	KnowingStore interface{ Proves() bool }
)

type passKey struct{}

// WithPass has ProvePass ask p. What the pass bases its actions on it must read from its caches after this call.
func WithPass(ctx context.Context, p Pass) context.Context {
	return context.WithValue(ctx, passKey{}, p)
}

// WithOwnerView is for a store that asks itself on behalf of an owner, which makes no requests with the context.
func WithOwnerView(ctx context.Context, owner Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// Passes makes a pass every period until the context ends, as wait.UntilWithContext does. A store that refuses actions
// may have passes made in between.
func Passes(ctx context.Context, store ConsistencyStore, pass func(context.Context), period time.Duration) {
	if s, ok := store.(PassStore); ok {
		s.Passes(ctx, pass, period)
		return
	}
	wait.UntilWithContext(ctx, pass, period)
}

// ProvePass returns nil if what the context's pass has read of the resources was as new as the server shortly before the
// pass began, or if there is no store that can tell. Otherwise the pass must not take this action.
func ProvePass(ctx context.Context, action string, resources ...schema.GroupResource) error {
	if p, ok := ctx.Value(passKey{}).(Pass); ok {
		return p.Prove(ctx, action, resources...)
	}
	return nil
}

// Proves reports whether the store is one that can tell what is fresh.
func Proves(store ConsistencyStore) bool {
	s, ok := store.(KnowingStore)
	return ok && s.Proves()
}

// OnlyUID has a deletion spare another object of the same name, if the store can tell what is fresh.
func OnlyUID(store ConsistencyStore, uid types.UID, options *metav1.DeleteOptions) *metav1.DeleteOptions {
	if Proves(store) {
		options.Preconditions = metav1.NewUIDPreconditions(string(uid))
	}
	return options
}

// Replaced reports whether a write that names a UID was refused because another object has the name by now.
func Replaced(store ConsistencyStore, err error) bool {
	return apierrors.IsConflict(err) && Proves(store)
}
