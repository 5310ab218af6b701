// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// fencer takes the tracker's fences of resources whose cache is registered.
type fencer struct{ p *Prover }

// Fencer returns the prover in the form that rvtracker.Options.Fencer wants.
func (p *Prover) Fencer() rvtracker.Fencer { return fencer{p} }

// Fence implements rvtracker.Fencer. The error wraps rvtracker.ErrUnprovable if asking again will not
// help, as for a resource without a registered cache (errNotRegistered).
func (f fencer) Fence(ctx context.Context, resource schema.GroupResource) (string, error) {
	gvr, ok := f.p.Lookup(resource)
	if !ok {
		return "", fmt.Errorf("%w: fence of %s: %w", rvtracker.ErrUnprovable, resource, errNotRegistered)
	}
	fence, err := f.p.Fence(ctx, gvr)
	var failed *Error
	if errors.As(err, &failed) {
		switch failed.Reason {
		case ReasonForbidden, ReasonNotFound, ReasonIncomparable:
			return "", fmt.Errorf("%w: %w", rvtracker.ErrUnprovable, err)
		}
	}
	if err != nil {
		return "", err
	}
	return fence.ResourceVersion, nil
}

// Lookup finds the version under which a resource's cache is registered. Without one it returns an empty version, of which nothing is proven.
func (p *Prover) Lookup(gr schema.GroupResource) (schema.GroupVersionResource, bool) {
	p.mu.RLock()
	found := p.versions[gr]
	p.mu.RUnlock()
	for _, gvr := range found {
		if p.registered(gvr) != nil {
			return gvr, true
		}
	}
	return gr.WithVersion(""), false
}

// WaitFor returns nil once the cache of a resource has passed rv, else an error, at the latest when ctx ends.
func (p *Prover) WaitFor(ctx context.Context, resource schema.GroupResource, rv string) error {
	gvr, _ := p.Lookup(resource)
	r := p.registered(gvr)
	if r == nil {
		return errNotRegistered
	}
	r.mu.Lock()
	view := r.view
	r.mu.Unlock()
	return view.WaitFor(ctx, rv)
}
