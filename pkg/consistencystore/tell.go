// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

// tellEvery is how often the log tells of an action that is put off or goes on, for each cache.
const tellEvery = 10 * time.Second

// tales is when the log last told what of actions, for each cache.
type tales struct {
	mu   sync.Mutex
	told map[tale]told
}

// tale is what the log tells of an action that depends on a cache.
type tale struct {
	message  string
	resource schema.GroupResource
}

// told is when the log last told it, and of how many more actions it was true since.
type told struct {
	at   time.Time
	more int
}

// due reports whether the log is to tell it now, and of how many more actions it was true since it last did.
func (t *tales) due(of tale) (now bool, more int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.told[of]
	if t.told == nil {
		t.told = map[tale]told{}
	}
	if time.Since(before.at) < tellEvery {
		t.told[of] = told{at: before.at, more: before.more + 1}
		return false, before.more
	}
	t.told[of] = told{at: time.Now()}
	return true, before.more
}

// tell logs what becomes of an action. Of many it tells of one in tellEvery for each cache, and how many more there were since the last:
// the page and the metrics have all.
func (s *Store) tell(ctx context.Context, message string, owner types.NamespacedName, resource schema.GroupResource, proof freshness.Proof) {
	logger := klog.FromContext(ctx)
	now, more := s.tales.due(tale{message: message, resource: resource})
	if !now {
		logger = logger.V(4)
	}
	logger.Info(message, "controller", s.name, "owner", owner, "resource", resource, "proof", proof.String(), "more", more)
}
