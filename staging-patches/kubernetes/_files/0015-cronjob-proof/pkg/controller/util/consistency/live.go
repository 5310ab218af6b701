// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// LiveReadStore is optionally implemented by a provider's store.
type LiveReadStore interface {
	// ReadLive calls read when the budget of live reads allows it. The error is read's, or says that the budget is spent.
	ReadLive(ctx context.Context, resource schema.GroupResource, read func(context.Context) error) error
}

// ReadLive calls read, which reads the resource from the server, within the store's budget of such reads if it has one.
func ReadLive(ctx context.Context, store ConsistencyStore, resource schema.GroupResource, read func(context.Context) error) error {
	if s, ok := store.(LiveReadStore); ok {
		return s.ReadLive(ctx, resource, read)
	}
	return read(ctx)
}
