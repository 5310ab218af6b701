// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// renewals is a leader lease that is renewed every 2 s, from when it was made. It proves everything at once, with what etcd
// has committed by then, and notes as of when it was asked.
type renewals struct {
	began time.Time

	mu    sync.Mutex
	asked []time.Time
}

func (r *renewals) Renewed() time.Time {
	return r.began.Add(time.Since(r.began).Truncate(2 * time.Second))
}

func (r *renewals) Prove(_ context.Context, _ schema.GroupResource, asOf time.Time) freshness.Proof {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, asOf)
	return freshness.Proof{Outcome: freshness.Proven, ResourceVersion: "5", At: time.Now()}
}

func (r *renewals) Known(schema.GroupResource) (freshness.Proof, bool) {
	return freshness.Proof{Outcome: freshness.Proven, ResourceVersion: "5", At: time.Now()}, true
}

func (*renewals) Wrote(schema.GroupResource, string, rvtracker.Sent) {}

func (*renewals) Wait(context.Context, schema.GroupResource, freshness.Proof) {}

// A write whose answer was lost may be committed a moment after a consistent read that was made after the loss, but not after
// another write that was sent later. So the owner waits for the leader lease to be renewed, and for a proof after that.
func TestALostWriteIsFollowedByAnother(t *testing.T) {
	metrics.Register()
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	for name, elected := range map[string]bool{"leader election": true, "no leader election": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &renewals{began: time.Now()}
				reached, woken := version("5"), make(chan string, 9)
				store := newStore(rvtracker.New(rvtracker.Options{}), "test", map[schema.GroupResource]consistency.LastSyncRVGetter{pods: &reached})
				store.ctx, store.prover = t.Context(), server
				if elected {
					store.unsettled.renewed = server.Renewed
				}
				store.OnReady(func(key string) { woken <- key })
				time.Sleep(500 * time.Millisecond)
				store.Unsettled(owner, "uid", pods, transport.NeverRetried)
				err := store.EnsureReady(owner)
				if !elected {
					require.NoError(t, err, "what is proven is all that can be known")
					return
				}
				require.ErrorContains(t, err, "the leader lease was not renewed since")
				require.True(t, consistency.Parked(err))
				require.Equal(t, "the leader lease was not renewed since", rowsOf(store.Waits)[0].Why)
				time.Sleep(1400 * time.Millisecond)
				synctest.Wait()
				require.Empty(t, woken)
				require.Empty(t, server.asked, "no proof is possible")

				// Another write is lost just before the renewal, which follows both.
				store.Unsettled(owner, "uid", pods, transport.NeverRetried)
				time.Sleep(100*time.Millisecond + renewalTick)
				synctest.Wait()
				require.Equal(t, "ns/owner", <-woken)
				require.NoError(t, store.EnsureReady(owner))
				require.Len(t, server.asked, 1)
				require.False(t, server.asked[0].Before(server.began.Add(2*time.Second)), "the proof is as new as the renewal")

				// What is lost afterwards needs a renewal of its own, of which the next retry may profit.
				store.Unsettled(owner, "uid", pods, transport.NeverRetried)
				require.Error(t, store.EnsureReady(owner))
				store.Clear(owner, "uid")
				require.Equal(t, "ns/owner", <-woken)
				store.Unsettled(owner, "uid", pods, transport.NeverRetried)
				time.Sleep(2 * time.Second)
				require.NoError(t, store.EnsureReady(owner))
				require.Len(t, server.asked, 1, "nobody waited")
			})
		})
	}
}

// The stores of a term know how its lock is held, if it is.
func TestStoresKnowTheLeaderLease(t *testing.T) {
	for _, elected := range []bool{true, false} {
		lease := &renewals{began: time.Now().Add(-time.Minute)}
		term := &Term{Tracker: rvtracker.New(rvtracker.Options{}), Prover: lease, Reports: NewReporter(nil)}
		if elected {
			term.Leadership = lease
		}
		store := term.New(t.Context(), "test", nil).(*Store)
		require.Equal(t, elected, store.unsettled.renewed != nil)
		if elected {
			require.Less(t, time.Since(store.unsettled.renewed()), 3*time.Second)
		}
	}
}
