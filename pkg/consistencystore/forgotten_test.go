// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// An action that another reconcile has proven is not listed any more, though the wait for its own proof goes on. What is put off again is.
func TestAnActionThatWasProvenIsNotListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(rvtracker.New(rvtracker.Options{}), "test", nil)
		store.ctx, store.prover = t.Context(), &verdicts{}
		store.OnReady(func(string) {})
		owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
		ended, end := context.WithCancel(t.Context())
		putOff := func() {
			store.await(t.Context(), owner, &putOff{wants: want{resource: nodes, action: "action"}, hold: hold{resource: nodes, proof: down}}, func() bool { <-ended.Done(); return true })
		}
		putOff()
		require.Len(t, rowsOf(store.Waits), 1)
		store.proven(owner, "action")
		require.NotNil(t, store.held.actionOf(owner), "the wait goes on")
		require.Empty(t, rowsOf(store.Waits))
		putOff()
		require.Len(t, rowsOf(store.Waits), 1)
		end()
		synctest.Wait()
		require.Empty(t, rowsOf(store.Waits))
	})
}
