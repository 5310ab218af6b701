// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

// earlyPass is how soon after a pass another may follow because an action was put off.
const earlyPass = time.Second

// errLongPass puts an action off to the next pass.
var errLongPass = errors.New("the pass began too long ago for its proofs; the next pass decides")

// Proves implements what consistency.OnlyUID and consistency.Replaced ask for.
func (s *Store) Proves() bool { return s.prover != nil }

// Passes makes a pass every period until ctx ends, and earlier once an action that was put off may be tried again. It
// implements what consistency.Passes asks for.
func (s *Store) Passes(ctx context.Context, run func(context.Context), period time.Duration) {
	again := make(chan struct{}, 1)
	s.OnReady(func(string) {
		select {
		case again <- struct{}{}:
		default:
		}
	})
	patience := promptly
	if period < promptly {
		patience = briefly // The rest of the pass must not come much later.
	} else {
		s.mu.Lock()
		s.period = period
		s.mu.Unlock()
	}
	var actions []string
	for ctx.Err() == nil {
		actions = s.pass(ctx, run, actions, patience)
		ended := time.Now()
		regular := time.NewTimer(period)
		select {
		case <-ctx.Done():
		case <-regular.C:
		case <-again:
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(ended.Add(min(earlyPass, period)))):
			}
		}
		regular.Stop()
	}
}

// pass makes one pass, and returns the actions that it, and the passes before it, wanted to take. It waits for proofs for patience at
// most.
func (s *Store) pass(ctx context.Context, run func(context.Context), actions []string, patience time.Duration) []string {
	defer utilruntime.HandleCrashWithContext(ctx)
	for _, action := range actions {
		s.proveAhead(types.NamespacedName{Name: action})
	}
	p := &pass{store: s, began: time.Now(), frequent: patience < promptly, view: s.View(nil, schema.GroupVersionKind{}), views: map[string]any{}}
	if v, ok := p.view.(*view); ok {
		v.patience = patience
	}
	run(consistency.WithPass(ctx, p))
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, action := range actions {
		if _, taken := p.views[action]; !taken {
			s.Clear(types.NamespacedName{Name: action}, "") // It does not wait any more.
		}
	}
	actions = actions[:0]
	for action := range p.views {
		actions = append(actions, action)
	}
	return actions
}

// pass is one look of a controller at all objects. Each kind of action is proven by itself, like an owner of
// that name, so that a missing proof of one does not delay the others.
type pass struct {
	store *Store
	began time.Time
	// frequent says that the next pass comes soon.
	frequent bool
	view     any

	mu    sync.Mutex
	views map[string]any
}

var _ consistency.Pass = &pass{}

// Prove implements consistency.Pass. If a frequent pass began more than ProofAge ago, because it has waited for other writes, the action is left
// to the next pass, which reads again.
func (p *pass) Prove(ctx context.Context, action string, resources ...schema.GroupResource) error {
	p.mu.Lock()
	if _, known := p.views[action]; !known {
		p.views[action] = p.viewOf()
	}
	of, _ := consistency.OwnerFrom(ctx)
	owner := consistency.Owner{Store: p.store, Name: types.NamespacedName{Name: action}, UID: of.UID, View: p.views[action]}
	p.mu.Unlock()
	if err := p.store.ProveFresh(consistency.WithOwnerView(ctx, owner), resources...); err != nil {
		return err
	}
	if p.frequent && p.store.prover != nil && time.Since(p.began) > ProofAge {
		return errLongPass
	}
	return nil
}

// viewOf is the view of the pass, for one action to prove.
func (p *pass) viewOf() any {
	v, ok := p.view.(*view)
	if !ok {
		return p.view
	}
	return &view{at: v.at, patience: v.patience, versions: v.versions, proven: map[schema.GroupResource]bool{}, turn: make(chan struct{}, 1)}
}
