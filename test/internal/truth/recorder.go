// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// retryWatch is the pause before a broken watch is resumed, as when an apiserver restarts.
	retryWatch = 50 * time.Millisecond
	// syncPoll is how often Sync looks whether the record is complete.
	syncPoll = 50 * time.Millisecond

	userAgent = "truth-recorder"
)

// Event is one change of one object.
type Event struct {
	// Type is watch.Added, watch.Modified or watch.Deleted. What was there when the recording began comes
	// as watch.Added too, with Initial set.
	Type    watch.EventType
	Initial bool
	// RV is the object's resource version after the change; for a deletion, that of the deletion.
	RV uint64
	// Time is when the event arrived here.
	Time time.Time
	// Object is the state after the change; for a deletion, the last state. It must not be changed.
	Object runtime.Object
	// UID, Namespace and Name are the object's.
	UID             types.UID
	Namespace, Name string
}

// Recorder records some resources. Its methods may be called from any goroutine.
type Recorder struct {
	recording context.Context
	cancel    context.CancelFunc
	done      sync.WaitGroup

	mu      sync.Mutex
	events  map[schema.GroupResource][]Event
	began   map[schema.GroupResource]uint64
	err     error
	sources []collection
	// rest are the sources of Rest, metadata what they have brought, and missed those of which something may be missing.
	rest     []collection
	metadata map[schema.GroupResource][]Event
	missed   map[schema.GroupResource]bool
}

// Record begins to record, and returns when it knows what is there. The context bounds the beginning only;
// the recording ends with Stop.
func Record(ctx context.Context, config *rest.Config, resources ...schema.GroupResource) (*Recorder, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = userAgent
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("truth recorder: %w", err)
	}
	recording, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &Recorder{
		recording: recording, cancel: cancel, events: map[schema.GroupResource][]Event{}, began: map[schema.GroupResource]uint64{},
		metadata: map[schema.GroupResource][]Event{}, missed: map[schema.GroupResource]bool{},
	}
	for _, resource := range resources {
		if err := r.begin(ctx, client, resource); err != nil {
			r.Stop()
			return nil, fmt.Errorf("truth recorder: %w", err)
		}
	}
	return r, nil
}

func (r *Recorder) begin(ctx context.Context, client kubernetes.Interface, resource schema.GroupResource) error {
	c, err := newCollection(client, resource)
	if err != nil {
		return err
	}
	return r.follows(ctx, c)
}

// follows begins to record a collection.
func (r *Recorder) follows(ctx context.Context, c collection) error {
	rv, objects, err := c.list(ctx)
	if err != nil {
		return err
	}
	began, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return fmt.Errorf("resource version of %s: %w", c.resource, err)
	}
	r.mu.Lock()
	r.began[c.resource] = began
	if c.metadata != nil {
		r.rest = append(r.rest, c)
	} else {
		r.sources = append(r.sources, c)
	}
	r.mu.Unlock()
	for _, object := range objects {
		if _, err := r.add(c, watch.Event{Type: watch.Added, Object: object}, true); err != nil {
			return err
		}
	}
	r.done.Go(func() { r.follow(r.recording, c, rv) })
	return nil
}

// follow watches until the recording ends, or until it would miss something.
func (r *Recorder) follow(ctx context.Context, c collection, rv string) {
	for ctx.Err() == nil {
		w, err := c.watch(ctx, rv)
		if err != nil {
			if c.metadata != nil && (apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)) {
				r.miss(c.resource) // its definition is gone
				return
			}
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				r.lost(c, fmt.Errorf("recording %s cannot be resumed at %s: %w", c.resource, rv, err))
				return
			}
			pause(ctx, retryWatch) // the apiserver is away
			continue
		}
		rv, err = r.read(c, rv, w)
		w.Stop()
		if err != nil {
			r.lost(c, err)
			return
		}
	}
}

// lost says that something of a collection is missing.
func (r *Recorder) lost(c collection, err error) {
	if c.metadata != nil {
		r.miss(c.resource)
		return
	}
	r.fail(err)
}

// read records one stream to its end and returns how far it came.
func (r *Recorder) read(c collection, rv string, w watch.Interface) (string, error) {
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			err := apierrors.FromObject(event.Object)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return rv, fmt.Errorf("recording %s after %s: %w", c.resource, rv, err)
			}
			return rv, nil
		}
		next, err := r.add(c, event, false)
		if err != nil {
			return rv, err
		}
		rv = next
	}
	return rv, nil
}

func (r *Recorder) add(c collection, event watch.Event, initial bool) (string, error) {
	m, err := meta.Accessor(event.Object)
	if err != nil {
		return "", fmt.Errorf("recording %s: %w", c.resource, err)
	}
	if event.Type == watch.Bookmark {
		return m.GetResourceVersion(), nil
	}
	rv, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	if err != nil {
		return "", fmt.Errorf("recording %s %s/%s: %w", c.resource, m.GetNamespace(), m.GetName(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	if c.metadata != nil {
		events = r.metadata
	}
	events[c.resource] = append(events[c.resource], Event{
		Type: event.Type, Initial: initial, RV: rv, Time: time.Now(), Object: event.Object,
		UID: m.GetUID(), Namespace: m.GetNamespace(), Name: m.GetName(),
	})
	return m.GetResourceVersion(), nil
}

func (r *Recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, err)
}

// Err says what the record misses; nil if it is complete.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Stop ends the recording. What was recorded stays.
func (r *Recorder) Stop() {
	r.cancel()
	r.done.Wait()
}

// Sync returns when the record holds everything that happened before the call, proven by a consistent read
// of each resource, or with what is missing when the context ends.
func (r *Recorder) Sync(ctx context.Context) error {
	r.mu.Lock()
	sources := r.sources
	r.mu.Unlock()
	for _, c := range sources {
		if err := r.sync(ctx, c); err != nil {
			return err
		}
	}
	return r.Err()
}

func (r *Recorder) sync(ctx context.Context, c collection) error {
	rv, objects, err := c.list(ctx)
	if err != nil {
		return fmt.Errorf("completing the truth: %w", err)
	}
	at, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return fmt.Errorf("completing the truth of %s: %w", c.resource, err)
	}
	for !r.covers(c.resource, at, objects) {
		r.mu.Lock()
		err := r.err
		missed := r.missed[c.resource]
		r.mu.Unlock()
		switch {
		case err != nil:
			return err
		case missed:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("completing the truth of %s: %w", c.resource, context.Cause(ctx))
		}
		pause(ctx, syncPoll)
	}
	return nil
}

// covers reports whether the record is at least as new as a list of the collection at a resource version.
func (r *Recorder) covers(resource schema.GroupResource, at uint64, objects []runtime.Object) bool {
	listed := map[types.UID]uint64{}
	for _, object := range objects {
		m, err := meta.Accessor(object)
		if err != nil {
			return false
		}
		rv, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
		if err != nil {
			return false
		}
		listed[m.GetUID()] = rv
	}
	seen := map[types.UID]Event{}
	for _, e := range r.All(resource) {
		seen[e.UID] = e
	}
	for uid, rv := range listed {
		if seen[uid].RV < rv {
			return false
		}
	}
	for uid, e := range seen {
		// It was there before the list and is not in it, so its deletion must have been recorded.
		if _, there := listed[uid]; !there && e.Type != watch.Deleted && e.RV <= at {
			return false
		}
	}
	return true
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
