// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// slowServer answers each fence after a while. One is under way at a time, and those share it that it is good for.
type slowServer struct {
	takes time.Duration
	fails bool

	mu     sync.Mutex
	proven time.Time
	begun  time.Time
	done   chan struct{} // nil: none is under way
	fences atomic.Int32
}

func (s *slowServer) LastStoreSyncResourceVersion() string { return "20" }

func (s *slowServer) Prove(_ context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof {
	for {
		s.mu.Lock()
		if proven := s.proven; !proven.IsZero() && !proven.Before(asOf) {
			s.mu.Unlock()
			return freshness.Proof{Outcome: freshness.Proven, At: proven, ResourceVersion: "20"}
		}
		if s.done == nil {
			s.fences.Add(1)
			s.begun, s.done = time.Now(), make(chan struct{})
			go func() {
				time.Sleep(s.takes)
				s.mu.Lock()
				defer s.mu.Unlock()
				if !s.fails {
					s.proven = s.begun
				}
				close(s.done)
				s.done = nil
			}()
		}
		covers, done := !s.begun.Before(asOf), s.done
		s.mu.Unlock()
		<-done
		s.mu.Lock()
		failed := s.fails
		s.mu.Unlock()
		if covers && failed {
			return freshness.Proof{Resource: resource.WithVersion("v1"), Outcome: freshness.Unknown, Reason: freshness.ReasonTimeout}
		}
	}
}

func (*slowServer) Wrote(schema.GroupResource, string, rvtracker.Sent) {}

func (*slowServer) Known(schema.GroupResource) (freshness.Proof, bool) {
	return freshness.Proof{}, false
}

func (*slowServer) Wait(context.Context, schema.GroupResource, freshness.Proof) {
	time.Sleep(time.Second)
}

// slowly has a store whose server takes so long, and a reconcile of one owner that wants to delete something.
func slowly(t *testing.T, takes time.Duration) (server *slowServer, store *Store, queue chan string, reconcile func() (took time.Duration, err error)) {
	server, queue = &slowServer{takes: takes}, make(chan string, 9)
	store = newStore(rvtracker.New(rvtracker.Options{}), "test", map[schema.GroupResource]consistency.LastSyncRVGetter{nodes: server})
	store.ctx, store.prover = t.Context(), server
	store.OnReady(func(key string) { queue <- key })
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	return server, store, queue, func() (time.Duration, error) {
		began := time.Now()
		require.NoError(t, store.EnsureReady(owner))
		err := consistency.ProveFresh(consistency.WithOwner(t.Context(), store, owner, "uid"), store, nodes)
		return time.Since(began), err
	}
}

// A slow server costs a deletion one of its reads, and the worker of the queue a moment, which has others to do.
func TestASlowProofHoldsNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, store, queue, reconcile := slowly(t, 10*time.Second)
		began := time.Now()
		took, err := reconcile()
		require.True(t, consistency.Parked(err))
		require.False(t, consistency.Again(err), "the rest of the reconcile goes on")
		require.Equal(t, promptly, took)
		require.ErrorContains(t, err, "has not answered within 1s")
		require.Len(t, rowsOf(store.Waits), 1, "the page says who waits")

		// Other reconciles of the owner neither occupy a worker nor ask again.
		time.Sleep(5 * time.Second)
		took, err = reconcile()
		require.Error(t, err)
		require.Equal(t, promptly, took)

		require.Equal(t, "ns/owner", <-queue)
		require.Equal(t, 10*time.Second, time.Since(began))
		took, err = reconcile()
		require.NoError(t, err)
		require.Zero(t, took)
		require.Equal(t, 1, int(server.fences.Load()))

		// The next deletion has a proof of its own.
		time.Sleep(time.Second)
		_, err = reconcile()
		require.Error(t, err)
		require.Equal(t, "ns/owner", <-queue)
		_, err = reconcile()
		require.NoError(t, err)
		require.Equal(t, 2, int(server.fences.Load()))
		require.Empty(t, store.ahead)
		require.Empty(t, store.putOffs)
	})
}

// A proof that was asked for long ago is no proof for an owner that comes back late: it gets another, however long that takes.
func TestASlowProofIsNotForMuchLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _, queue, reconcile := slowly(t, 10*time.Second)
		_, err := reconcile()
		require.Error(t, err)
		<-queue
		time.Sleep(ProofAge + time.Millisecond)
		took, err := reconcile()
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, took)
		require.Equal(t, 2, int(server.fences.Load()))
	})
}

// An owner wants nothing any more after it has waited, and another deletion later: how long its proofs took then says nothing.
func TestASlowProofOfBeforeIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, store, queue, reconcile := slowly(t, 10*time.Second)
		_, err := reconcile()
		require.Error(t, err)
		<-queue
		require.NoError(t, store.EnsureReady(types.NamespacedName{Namespace: "ns", Name: "owner"}))
		time.Sleep(time.Hour)
		server.Prove(t.Context(), nodes, time.Now()) // for somebody else
		_, err = reconcile()
		require.Error(t, err, "a proof from 10 s before is too old")
		<-queue
	})
}

// A proof that fails in the end is asked for again.
func TestASlowProofThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, store, queue, reconcile := slowly(t, 10*time.Second)
		server.fails = true
		began := time.Now()
		for range 3 {
			_, err := reconcile()
			require.Error(t, err)
			<-queue
			require.Equal(t, time.Now().Add(-ProofAge), store.asOf(types.NamespacedName{Namespace: "ns", Name: "owner"}, pods, time.Now(), ProofAge))
		}
		require.Len(t, rowsOf(store.Waits), 0)
		server.mu.Lock()
		server.fails = false
		server.mu.Unlock()
		_, err := reconcile()
		require.Error(t, err)
		<-queue
		_, err = reconcile()
		require.NoError(t, err)
		require.Equal(t, 40*time.Second, time.Since(began))
	})
}
