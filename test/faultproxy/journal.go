// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Action says what an intervention did.
type Action string

// The interventions that the journal tells apart.
const (
	ActionInjected  Action = "Injected"  // a fault came into force
	ActionCleared   Action = "Cleared"   // a fault was taken back
	ActionHeld      Action = "Held"      // a frame or a list was kept back
	ActionReleased  Action = "Released"  // a kept frame or list was handed to the client
	ActionDropped   Action = "Dropped"   // a frame or an answer will never reach the client
	ActionAnswered  Action = "Answered"  // a request was answered instead of being forwarded
	ActionRewritten Action = "Rewritten" // a frame or an answer was changed
	ActionDoubled   Action = "Doubled"   // a frame was handed to the client twice
	ActionSwapped   Action = "Swapped"   // a frame was handed to the client after the one that came after it
	ActionEnded     Action = "Ended"     // a stream was ended, or left half open
	ActionSwitched  Action = "Switched"  // the client was moved to another backend
)

// Entry is one intervention.
type Entry struct {
	Time   time.Time
	Action Action
	// Fault is the fault's id; empty for ActionSwitched.
	Fault string
	// Effect is the effect's kind, or the new backend's name for ActionSwitched.
	Effect   string
	Resource schema.GroupResource
	// Stream is the watch stream's id; 0 if the intervention was not on a stream.
	Stream int64
	// Type, Namespace, Name and ResourceVersion describe the frame or request, as far as they are known.
	Type            watch.EventType
	Namespace, Name string
	ResourceVersion string
}

// journal is a ring of the latest entries.
type journal struct {
	mu      sync.Mutex
	entries []Entry
	size    int
	next    int
}

func (j *journal) add(e Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.entries) < j.size {
		j.entries = append(j.entries, e)
		return
	}
	j.entries[j.next] = e
	j.next = (j.next + 1) % j.size
}

func (j *journal) snapshot() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Concat(j.entries[j.next:], j.entries[:j.next])
}
