// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// unrecorded is what Rest leaves out: nothing acts on events, and leases change with each heartbeat.
var unrecorded = []schema.GroupResource{corev1.Resource("events"), {Group: "events.k8s.io", Resource: "events"}, Leases}

// Rest records the metadata of all other resources whose objects can be deleted, as the garbage collector knows them: owners, finalizers,
// deletions. Called again it adds the resources that have come since. What is missed of one is no error: Resources leaves it out then.
func (r *Recorder) Rest(ctx context.Context, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.UserAgent, config.QPS = userAgent, -1 // no limit
	asks, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("truth recorder: %w", err)
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("truth recorder: %w", err)
	}
	lists, err := discovery.ServerPreferredResources(asks)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return fmt.Errorf("truth recorder: %w", err)
	}
	resources, err := discovery.GroupVersionResources(discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"delete", "list", "watch"}}, lists))
	if err != nil {
		return fmt.Errorf("truth recorder: %w", err)
	}
	for resource := range resources {
		c := collection{resource: resource.GroupResource(), metadata: client.Resource(resource)}
		if slices.Contains(unrecorded, c.resource) || r.records(c.resource) {
			continue
		}
		if err := r.follows(ctx, c); err != nil {
			return fmt.Errorf("truth recorder: %w", err)
		}
	}
	return nil
}

func (r *Recorder) records(resource schema.GroupResource) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.began[resource]
	return ok
}

// All returns a copy of what was recorded of a resource, in order: of one of Rest only metadata.
func (r *Recorder) All(resource schema.GroupResource) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.events[resource], r.metadata[resource])
}

// Resources are those of which there is a record without gaps.
func (r *Recorder) Resources() (out []schema.GroupResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, events := range []map[schema.GroupResource][]Event{r.events, r.metadata} {
		for resource := range events {
			if !r.missed[resource] {
				out = append(out, resource)
			}
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupResource) int {
		return slices.Compare([]string{a.Group, a.Resource}, []string{b.Group, b.Resource})
	})
	return out
}

// SyncAll is Sync for the resources of Rest, too.
func (r *Recorder) SyncAll(ctx context.Context) error {
	if err := r.Sync(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	sources := slices.Clone(r.rest)
	r.mu.Unlock()
	for _, c := range sources {
		if err := r.sync(ctx, c); err != nil {
			if ctx.Err() != nil {
				return err
			}
			r.miss(c.resource)
		}
	}
	return r.Err()
}

// miss notes that something of a resource of Rest may be missing.
func (r *Recorder) miss(resource schema.GroupResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missed[resource] = true
}
