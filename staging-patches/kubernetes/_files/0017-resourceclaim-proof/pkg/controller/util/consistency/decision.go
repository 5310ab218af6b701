// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Decision is one action for one object, and what it rests on.
type Decision struct {
	// Action names it among those for the object.
	Action   string
	Resource schema.GroupResource
	// Now asks for a cache that is as new as the begin of the reading, where one from shortly before is not enough.
	Now bool
	// Cached is asked, after the proof, whether the cache says that the action is right.
	Cached func() bool
	// Read asks the server whether it is.
	Read func(ctx context.Context) (bool, error)
}

// DecidingPass is a pass that Decide asks. It is optionally implemented by a provider's.
type DecidingPass interface {
	Decide(ctx context.Context, d Decision) bool
}

// Decide reports whether an action is to be taken: the cache decides if it is proven fresh, or else a live read if there is
// budget for one. If neither can be, the object comes back as WithReading says. Without a store that can tell, the action is right.
func Decide(ctx context.Context, d Decision) bool {
	if p, ok := ctx.Value(passKey{}).(DecidingPass); ok {
		return p.Decide(ctx, d)
	}
	return true
}
