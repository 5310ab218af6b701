// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
)

// stuck proves nothing, and who waits for it waits as long as the test takes.
type stuck struct{ *verdicts }

func (stuck) Wait(ctx context.Context, _ schema.GroupResource, _ freshness.Proof) { <-ctx.Done() }

// waitingReadings have so many quotas wait for one value each.
func waitingReadings(tb testing.TB, n int) *Store {
	tb.Helper()
	prover := &verdicts{of: map[schema.GroupResource]freshness.Proof{pods: fresh, nodes: stale}}
	store, _ := readingStore(tb.Context(), stuck{prover})
	store.OnReady(func(string) {})
	store.slow = time.Now().Add(time.Hour) // Nobody waits for a proof that comes late.
	for i := range n {
		ctx := consistency.WithReading(tb.Context(), store, fmt.Sprint("ns/quota-", i))
		require.Error(tb, consistency.ProvePass(ctx, "count/nodes", nodes))
		store.proveNextAhead(types.NamespacedName{Name: ownerOf(fmt.Sprint("ns/quota-", i), "count/nodes")}, []schema.GroupResource{nodes}, nil)
	}
	return store
}

// A sync of a quota or budget costs no more because others wait.
func BenchmarkReadingBesideOthersThatWait(b *testing.B) {
	for _, n := range []int{0, 1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			store := waitingReadings(b, n)
			b.ReportAllocs()
			for b.Loop() {
				store.Reading("ns/another")
			}
		})
	}
}
