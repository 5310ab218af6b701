// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Counted are objects that a value was computed from: those of a resource that List reads from its cache. Without List there are none.
type Counted struct {
	Resource schema.GroupResource
	List     func() ([]any, error)
}

// LoweringPass is a pass that ProveLowered asks.
type LoweringPass interface {
	ProveLowered(ctx context.Context, action string, to int32, counted Counted, resources ...schema.GroupResource) (int32, error)
}

// ProveLowered is ProvePass for a value that is to be lowered, and was computed from the objects counted and from what was measured
// after WithReading. These objects are proven as of now, so that none is missing that was there when it was measured. It returns what the
// value may be lowered to: to, or more if the proof is of an earlier reading, whose objects were the same, and which called for more.
func ProveLowered(ctx context.Context, action string, to int32, counted Counted, resources ...schema.GroupResource) (int32, error) {
	if p, ok := ctx.Value(passKey{}).(LoweringPass); ok {
		return p.ProveLowered(ctx, action, to, counted, resources...)
	}
	return to, nil
}
