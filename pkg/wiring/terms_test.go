// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/consistencystore"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// With leader migration a second term begins while the controllers of the first reconcile. The race detector is the oracle.
func TestASecondTermBeginsBesideRunningReconciles(t *testing.T) {
	terms := &Terms{}
	consistency.SetProvider(terms.Store)
	t.Cleanup(func() { consistency.SetProvider(nil) })
	build := func() consistency.ConsistencyStore {
		return consistency.New("test", map[schema.GroupResource]consistency.LastSyncRVGetter{})
	}
	upstreams := build()
	require.NotNil(t, upstreams, "before there is a term")
	term := func() *Wiring {
		w, err := New(t.Context(), &restclient.Config{Host: "http://127.0.0.1:1"}, meta.NewDefaultRESTMapper(nil), transport.NewWatches(), nil)
		require.NoError(t, err)
		return w
	}
	first, second := term(), term()
	terms.Begin(first)
	store := build()
	require.Equal(t, []consistencystore.ControllerStore{store.(consistencystore.ControllerStore)}, first.stores)

	ctx, end := context.WithCancel(t.Context())
	var reconciles sync.WaitGroup
	reconciling := make(chan struct{}, 4)
	for range cap(reconciling) {
		reconciles.Go(func() {
			for ctx.Err() == nil {
				for _, s := range []consistency.ConsistencyStore{store, upstreams} { // Of a store that parks nobody the provider is asked for.
					owner := consistency.WithOwner(ctx, s, types.NamespacedName{Namespace: "ns", Name: "owner"}, "uid")
					_ = consistency.OwnerContext(owner)
				}
				select {
				case reconciling <- struct{}{}:
				default:
				}
			}
		})
	}
	for range cap(reconciling) {
		<-reconciling
	}
	terms.Begin(second)
	require.Equal(t, []consistencystore.ControllerStore{build().(consistencystore.ControllerStore)}, second.stores)
	end()
	reconciles.Wait()
}
