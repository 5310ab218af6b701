// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

// slowProofs are the last proofs of a term for which the server took longer than promptly. Another one would be as old once it came, so for as long as a proof may be old they count as of when they
// came: else each of several actions that follow one upon the other, of one controller or of two, would wait for a proof of its own. The zero value and nil have none. All methods may be
// called concurrently.
type slowProofs struct {
	mu sync.Mutex
	of map[schema.GroupResource]slowProof
}

type slowProof struct{ at, came time.Time }

// note notes a proof that has come now.
func (p *slowProofs) note(resource schema.GroupResource, proof freshness.Proof) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[schema.GroupResource]slowProof{}
	}
	p.of[resource] = slowProof{at: proof.At, came: time.Now()}
}

// since is the time of a proof that came no longer than age before began, or else that: a proof must reach it.
func (p *slowProofs) since(resource schema.GroupResource, began time.Time, age time.Duration) time.Time {
	since := began.Add(-age)
	if p == nil || age == 0 { // No proof may be older.
		return since
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, ok := p.of[resource]; ok && !last.came.Before(since) {
		return earlier(since, last.at)
	}
	return since
}
