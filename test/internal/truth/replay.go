// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Replay returns a recorder that holds these events and records no more, to test what judges a record.
func Replay(events map[schema.GroupResource][]Event) *Recorder {
	return &Recorder{cancel: func() {}, events: events, began: map[schema.GroupResource]uint64{}}
}
