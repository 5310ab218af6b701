// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

const (
	// sharedFirst is how long to wait for the shared proof before a live read: the time in which a busy cache passes a fence.
	sharedFirst = 30 * time.Millisecond
	// sharedFirstOfMany is that for an owner of many objects, whose read costs more than a proof that comes a little later.
	sharedFirstOfMany = 200 * time.Millisecond
	// liveRate and liveBurst limit the live reads of few objects. Many deletions at once make a cache busy.
	liveRate  = rate.Limit(5)
	liveBurst = 20
	// manyRate and manyBurst limit those of many, so that none takes anything from the others.
	manyRate  = rate.Limit(0.5)
	manyBurst = 4
	// liveTimeout bounds a read.
	liveTimeout = 5 * time.Second
	// fewOwned is how many pods, or ReplicaSets, of an owner are few; more than manyOwned are not read.
	fewOwned  = 100
	manyOwned = 5000
	// outdatedFor is for how long an object of a cache counts as outdated that a live read has shown to be so. The server never has that version
	// again, unless etcd is restored.
	outdatedFor = time.Minute
)

// Live reads from the server the objects on which one deletion depends, in place of the proof of a large cache that stands
// still, which takes seconds.
type Live struct {
	client  metadata.Interface
	version func(schema.GroupResource) (schema.GroupVersionResource, bool)
	// few reports whether a cache has so few objects that its proof is fast.
	few func(schema.GroupResource) bool
	// budget is for reads of few objects, and forMany for those of many.
	budget, forMany *livereads.Budget
	// outdated has, by readFor, an object of a cache that a live read has shown to be outdated: another read is no use before the cache
	// has another version of it.
	outdated *utilcache.Expiring
}

// readFor is what live reads are made for.
type readFor struct {
	controller string
	owner      types.UID
	resource   schema.GroupResource
}

// NewLive returns a Live that reads with config. version returns the version of a resource; few reports whether a cache has so few
// objects that its proof is fast.
func NewLive(config *rest.Config, version func(schema.GroupResource) (schema.GroupVersionResource, bool), few func(schema.GroupResource) bool) (*Live, error) {
	config = metadata.ConfigFor(config)
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	config.UserAgent += " freshness"
	config.QPS = -1
	config.Wrap(livereads.AskOnce)
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of live reads: %w", err)
	}
	return &Live{client: client, version: version, few: few, budget: livereads.NewBudget(liveRate, liveBurst), forMany: livereads.NewBudget(manyRate, manyBurst),
		outdated: utilcache.NewExpiring()}, nil
}

// readable reports whether a live read can show what the reconcile has read of the resource.
func (v *view) readable(resource schema.GroupResource) bool {
	if v.own == nil {
		return false
	}
	owned := v.owned[resource]
	return resource == v.own.resource || owned != nil && v.own.selector != nil && owned.number <= manyOwned
}

// reads reports whether it may show what the reconcile has read of the resource. Few revisions are proven as fast as those of one owner are read.
func (l *Live) reads(v *view, resource schema.GroupResource) bool {
	return v.readable(resource) && (resource != revisionResource || !l.few(resource))
}

// many reports whether a live read of the resource is one of many objects.
func (v *view) many(resource schema.GroupResource) bool {
	owned := v.owned[resource]
	return owned != nil && owned.number > fewOwned
}

// sight is what a live read shows of the owner, or of what it controls.
type sight int

const (
	// unlike: the server does not have it as it was read, or the read failed.
	unlike sight = iota
	// asRead: the server has it at the versions that the reconcile has read.
	asRead
	// asCached: the server has it at the versions that the cache has by now, and not at those that the reconcile has read.
	asCached
)

// shows makes a live read of the owner, or of what it controls.
func (l *Live) shows(ctx context.Context, controller string, v *view, resource schema.GroupResource) sight {
	gvr, ok := l.version(resource)
	if !ok || !v.readable(resource) || l.inVain(controller, v) {
		return unlike
	}
	by, client := readFor{controller, v.own.read.uid, resource}, l.client.Resource(gvr).Namespace(v.own.namespace)
	if resource == v.own.resource {
		return l.showsOwner(ctx, by, v.own, client)
	}
	return l.showsOwned(ctx, by, v.own, v.owned[resource], client)
}

func (l *Live) showsOwner(ctx context.Context, by readFor, own *ownObject, client metadata.ResourceInterface) sight {
	if known, _ := l.outdated.Get(by); known == own.read {
		return unlike
	}
	// By default kube-controller-manager may list what it watches, but not get it.
	list, err := list(ctx, l.budget, by, client, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, own.name).String()})
	if err != nil {
		return unlike
	}
	equal := slices.ContainsFunc(list.Items, func(now metav1.PartialObjectMetadata) bool { return read(&now) == own.read })
	if !equal {
		l.outdated.Set(by, own.read, outdatedFor)
		return unlike
	}
	return asRead
}

func (l *Live) showsOwned(ctx context.Context, by readFor, own *ownObject, owned *owned, client metadata.ResourceInterface) sight {
	known, _ := l.outdated.Get(by)
	if of, ok := known.(objectVersion); ok && owned.has(of) {
		return unlike
	}
	selector, err := metav1.LabelSelectorAsSelector(own.selector)
	if err != nil {
		return unlike
	}
	list, err := list(ctx, l.budgetOf(owned), by, client, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return unlike
	}
	equal, outdated := owned.equal(list.Items)
	if outdated != (objectVersion{}) {
		l.outdated.Set(by, outdated, outdatedFor)
	}
	switch { // In this order: what was compared is what the reconcile has read.
	case !equal:
		return unlike
	case owned.unchanged():
		return asRead
	}
	return asCached
}

// budgetOf is the budget for a read of these objects.
func (l *Live) budgetOf(owned *owned) *livereads.Budget {
	if owned.number > fewOwned {
		return l.forMany
	}
	return l.budget
}

// list makes a read, unless the budget is spent or such reads pause.
func list(ctx context.Context, budget *livereads.Budget, by readFor, client metadata.ResourceInterface, opts metav1.ListOptions) (list *metav1.PartialObjectMetadataList, err error) {
	err = budget.Try(ctx, by.controller, by.resource, liveTimeout, func(ctx context.Context) (err error) {
		list, err = client.List(ctx, opts)
		return err
	})
	return list, err
}

// inVain reports whether a live read of one resource is not enough, because those of another on which the deletion depends fail.
func (l *Live) inVain(controller string, v *view) bool {
	for resource, owned := range v.owned {
		if l.budgetOf(owned).Pauses(controller, resource) {
			return true
		}
	}
	return l.budget.Pauses(controller, v.own.resource)
}

// ReadLive implements consistency.LiveReadStore within the budget that all guards share.
func (s *Store) ReadLive(ctx context.Context, resource schema.GroupResource, read func(context.Context) error) error {
	if s.budget == nil {
		return read(ctx)
	}
	return s.budget.ReadWithin(ctx, s.name, resource, promptly, liveTimeout, read)
}

// proveOrRead returns the shared proof, or a live read of what this deletion depends on, if that is faster or the cache is not proven fresh: what the
// owner has read of a stale cache may still be as on the server. Where a cache always lags, only a live read can show that. If the cache has what the owner
// controls as the server has it, but it has changed since it was read, a first reading is not proven any more: a second one is shown as soon as it is read.
func (s *Store) proveOrRead(ctx context.Context, v *view, resource schema.GroupResource, asOf time.Time, first bool) reply {
	if s.live == nil || !s.live.reads(v, resource) {
		return reply{proof: s.prover.Prove(ctx, resource, asOf)}
	}
	proofs := make(chan freshness.Proof, 1)
	go func() { proofs <- s.prover.Prove(ctx, resource, asOf) }()
	var late <-chan time.Time // nil: the proof is not slow
	if !s.live.few(resource) {
		wait := sharedFirst
		if v.many(resource) {
			wait = sharedFirstOfMany
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		late = timer.C
	}
	read := func() <-chan sight {
		shown := make(chan sight, 1)
		go func() { shown <- s.live.shows(ctx, s.name, v, resource) }()
		return shown
	}
	var shown <-chan sight // nil: nothing is read yet
	for {
		select {
		case <-late:
			shown = read()
		case what := <-shown:
			switch {
			case what == asRead:
				return reply{shown: true, later: proofs}
			case what == asCached && first:
				return reply{changed: true, later: proofs}
			}
			return reply{proof: <-proofs}
		case proof := <-proofs:
			if proof.Fresh() {
				return reply{proof: proof}
			}
			if shown == nil {
				shown = read()
			}
			if <-shown != asRead {
				return reply{proof: proof}
			}
			proofs <- proof
			return reply{shown: true, later: proofs}
		}
	}
}

// selectorOf selects the pods that an owner may have.
func selectorOf(owner metav1.Object) *metav1.LabelSelector {
	switch o := owner.(type) {
	case *apps.DaemonSet:
		return o.Spec.Selector
	case *apps.Deployment:
		return o.Spec.Selector
	case *apps.StatefulSet:
		return o.Spec.Selector
	case *apps.ReplicaSet:
		return o.Spec.Selector
	case *batch.Job:
		return o.Spec.Selector
	}
	return nil
}
