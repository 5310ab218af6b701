// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// Provider makes the consistency store of a controller from the stores that it reads.
type Provider func(controller string, stores map[schema.GroupResource]LastSyncRVGetter) ConsistencyStore

var provider Provider

// SetProvider has New and NewIfProvided ask p. It must be called before any controller is built, as workqueue.SetProvider is; nil restores upstream's behaviour.
func SetProvider(p Provider) { provider = p }

// New returns the provider's store for the controller, or NewConsistencyStore's without a provider.
func New(controller string, stores map[schema.GroupResource]LastSyncRVGetter) ConsistencyStore {
	if provider != nil {
		return provider(controller, stores)
	}
	return NewConsistencyStore(stores)
}

// NewIfProvided is New for a controller that upstream leaves without a store.
func NewIfProvided(controller string, stores map[schema.GroupResource]LastSyncRVGetter) ConsistencyStore {
	if provider != nil {
		return provider(controller, stores)
	}
	return NewNoopConsistencyStore()
}

// What follows is optionally implemented by a provider's store, and by its errors.
type (
	// ParkingStore puts owners back on the queue; see OnReady.
	ParkingStore interface{ OnReady(add func(key string)) }
	// ProvingStore can tell whether its caches are fresh; see ProveFresh.
	ProvingStore interface {
		ProveFresh(ctx context.Context, resources ...schema.GroupResource) error
	}
	// OwnWritesStore knows what its caches have seen; see SeenOwnWrites.
	OwnWritesStore interface {
		SeenOwnWrites(owner types.NamespacedName) bool
	}
	// LeavingStore tries some owners again by itself; see Leaves.
	LeavingStore interface{ Leaves(string, bool) bool }
	// ViewStore makes the View of an Owner; read and kind are WithOwnerRead's.
	ViewStore interface {
		View(read metav1.Object, kind schema.GroupVersionKind) any
	}
	// ParkedError is an error of which Parked may be true.
	ParkedError interface{ Parked() bool }
	// AgainError is an error of which Again may be true.
	AgainError interface{ Again() bool }
)

// OnReady has a store that parks owners put their keys back on the controller's queue.
func OnReady(store ConsistencyStore, add func(key string)) {
	if s, ok := store.(ParkingStore); ok {
		s.OnReady(add)
	}
}

// Parked reports whether an error, of EnsureReady or ProveFresh, says that the owner will be put back on the queue by OnReady, so that a retry with backoff
// is not wanted. What the queue knows of earlier failures must stay: the owner has not been reconciled. Of several errors all must say so.
func Parked(err error) bool {
	return all(err, func(err error) bool {
		var p ParkedError
		return errors.As(err, &p) && p.Parked()
	})
}

// Leaves reports whether the queue is to do nothing about the owner with this key: it has given it up before, or the reconcile did not fail, but the action that has failed waits.
func Leaves(store ConsistencyStore, key string, failed bool) bool {
	s, ok := store.(LeavingStore)
	return ok && s.Leaves(key, failed)
}

// Again reports whether an error of ProveFresh says that only a newer reading of the caches is wanted, for which Sync
// reconciles the owner once more: what else the reconcile has to do it may leave to that.
func Again(err error) bool {
	return all(err, func(err error) bool {
		var p AgainError
		return errors.As(err, &p) && p.Again()
	})
}

// Sync reconciles the owner with this key, and once more if that wants a newer reading of the caches (Again): it would have to queue for long where reconciles are slow.
func Sync(ctx context.Context, key string, reconcile func(ctx context.Context, key string) error) error {
	err := reconcile(ctx, key)
	if Again(err) {
		return reconcile(ctx, key)
	}
	return err
}

func all(err error, says func(error) bool) bool {
	several, ok := err.(utilerrors.Aggregate)
	if !ok {
		return err != nil && says(err)
	}
	return !slices.ContainsFunc(utilerrors.Flatten(several).Errors(), func(err error) bool { return !says(err) })
}

// ProveFresh returns nil if what the reconcile has read of the resources, of its own one the owner, was as new as the server shortly before the context
// got its owner, or if the store does not know how to tell. Otherwise the caller must not act on what it read; the store puts the owner back on the queue
// when it may be worth trying again. What was proven of a reconcile stays so.
func ProveFresh(ctx context.Context, store ConsistencyStore, resources ...schema.GroupResource) error {
	if s, ok := store.(ProvingStore); ok {
		return s.ProveFresh(ctx, resources...)
	}
	return nil
}

// SeenOwnWrites reports, after EnsureReady returned nil, whether the caches are known to have every write and deletion that was made for the owner.
// Expectations of the same then have nothing left to wait for, even if the events that they count never come.
func SeenOwnWrites(store ConsistencyStore, owner types.NamespacedName) bool {
	s, ok := store.(OwnWritesStore)
	return ok && s.SeenOwnWrites(owner)
}

type ownerKey struct{}

// Owner says for which object, and with which store, requests are made.
type Owner struct {
	Store ConsistencyStore
	Name  types.NamespacedName
	UID   types.UID
	View  any // what the store knew of its caches then
}

// WithOwner marks the requests made with the context as made for owner, so that a client can record
// its writes. What the reconcile bases its actions on it must read from its caches after this call.
func WithOwner(ctx context.Context, store ConsistencyStore, name types.NamespacedName, uid types.UID) context.Context {
	return withOwner(ctx, Owner{Store: store, Name: name, UID: uid}, nil, schema.GroupVersionKind{})
}

// WithOwnerRead is WithOwner with the owner as the reconcile has read it from its cache, so that ProveFresh can tell
// whether it, and the pods that it controls, are still the same.
func WithOwnerRead(ctx context.Context, store ConsistencyStore, owner metav1.Object, kind schema.GroupVersionKind) context.Context {
	return withOwner(ctx, Owner{Store: store, Name: types.NamespacedName{Namespace: owner.GetNamespace(), Name: owner.GetName()}, UID: owner.GetUID()}, owner, kind)
}

func withOwner(ctx context.Context, o Owner, read metav1.Object, kind schema.GroupVersionKind) context.Context {
	if s, ok := o.Store.(ViewStore); ok {
		o.View = s.View(read, kind)
	}
	return context.WithValue(ctx, ownerKey{}, o)
}

// OwnerContext is for helpers that make requests without the reconcile's context: it has the owner of ctx, if there is or was a provider, and nothing else.
func OwnerContext(ctx context.Context) context.Context {
	o, ok := OwnerFrom(ctx)
	_, parks := o.Store.(ParkingStore)
	if ok && (parks || provider != nil) {
		return context.WithValue(context.TODO(), ownerKey{}, o)
	}
	return context.TODO()
}

// OwnerFrom returns what WithOwner put into the context.
func OwnerFrom(ctx context.Context) (Owner, bool) {
	o, ok := ctx.Value(ownerKey{}).(Owner)
	return o, ok
}
