// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Latest is the resource version beyond all others, for At.
const Latest = ^uint64(0)

// Events returns a copy of what was recorded of a resource, in order.
func (r *Recorder) Events(resource schema.GroupResource) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events[resource])
}

// Began is the resource version at which the recording of a resource began.
func (r *Recorder) Began(resource schema.GroupResource) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.began[resource]
}

// At returns the objects of a resource at a resource version, each as its latest event by then.
func (r *Recorder) At(resource schema.GroupResource, rv uint64) map[types.UID]Event {
	state := map[types.UID]Event{}
	for _, e := range r.Events(resource) {
		if e.RV > rv {
			if e.Initial {
				continue // the initial list is not ordered by resource version
			}
			break
		}
		if e.Type == watch.Deleted {
			delete(state, e.UID)
		} else {
			state[e.UID] = e
		}
	}
	return state
}

// Find returns the event that an object of this name had at a resource version, if it was there.
func (r *Recorder) Find(resource schema.GroupResource, namespace, name string, rv uint64) (Event, bool) {
	for _, e := range r.At(resource, rv) {
		if e.Namespace == namespace && e.Name == name {
			return e, true
		}
	}
	return Event{}, false
}

// Dump writes the record to a directory, one file of JSON lines for each resource.
func (r *Recorder) Dump(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("dumping the truth: %w", err)
	}
	for _, resource := range r.Resources() {
		if err := r.dump(dir, resource); err != nil {
			return fmt.Errorf("dumping the truth of %s: %w", resource, err)
		}
	}
	return nil
}

func (r *Recorder) dump(dir string, resource schema.GroupResource) error {
	name := strings.ReplaceAll(resource.String(), ".", "-") + ".jsonl"
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	lines := json.NewEncoder(f)
	for _, e := range r.All(resource) {
		line := map[string]any{
			"type": e.Type, "initial": e.Initial, "rv": e.RV, "time": e.Time.Format(time.RFC3339Nano), "object": e.Object,
		}
		if err := lines.Encode(line); err != nil {
			return err
		}
	}
	return f.Close()
}
