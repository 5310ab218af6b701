// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package livereads

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"
)

var (
	nodesResource  = schema.GroupResource{Resource: "nodes"}
	leasesResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
)

func TestBudgetBoundsReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(DefaultRate, DefaultBurst)
		start := time.Now()
		for range DefaultBurst {
			require.NoError(t, b.Take(t.Context(), "a", nodesResource))
		}
		require.Zero(t, time.Since(start), "a burst waits for nothing")
		for i := range 5 {
			require.NoError(t, b.Take(t.Context(), "a", nodesResource))
			require.Equal(t, time.Duration(i+1)*time.Second, time.Since(start).Round(time.Millisecond))
		}
	})
}

// Whatever else is asked for, also by the same controller of another resource, a lane that waits is served
// within as many tokens as there are lanes, and no token is lost or made up.
func TestBudgetIsFair(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		greedy := rapid.IntRange(1, 40).Draw(rt, "greedy reads")
		others := rapid.IntRange(1, 5).Draw(rt, "others")
		gaveUp := rapid.IntRange(0, 10).Draw(rt, "greedy reads given up")
		synctest.Test(t, func(t *testing.T) {
			b := NewBudget(1, 1)
			require.NoError(t, b.Take(t.Context(), "first", nodesResource))
			start := time.Now()
			served := make(chan string, greedy+others)
			short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			for range gaveUp {
				go func() { require.Error(t, b.Take(short, "greedy", nodesResource)) }()
			}
			for range greedy {
				go func() {
					require.NoError(t, b.Take(t.Context(), "greedy", nodesResource))
					served <- "greedy"
				}()
			}
			synctest.Wait()
			for i := range others {
				go func() {
					if i == 0 {
						require.NoError(t, b.Take(t.Context(), "greedy", leasesResource))
					} else {
						require.NoError(t, b.Take(t.Context(), fmt.Sprint("other", i), nodesResource))
					}
					served <- "other"
				}()
			}
			patient := 0
			for range others + 1 {
				if <-served == "other" {
					patient++
				}
			}
			require.Equal(t, others, patient, "each of the others had its turn in the first round")
			for range greedy - 1 {
				<-served
			}
			require.Equal(t, time.Duration(greedy+others)*time.Second, time.Since(start).Round(time.Millisecond), "one token a second")
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			require.Empty(t, b.turns)
			require.Empty(t, b.queue)
			require.Nil(t, b.timer)
		})
	})
}

func TestBudgetGivesUpWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1, 1)
		require.NoError(t, b.Take(t.Context(), "a", nodesResource))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, b.Take(ctx, "a", nodesResource), context.DeadlineExceeded)
		require.ErrorIs(t, b.Take(ctx, "a", nodesResource), context.DeadlineExceeded)
		start := time.Now()
		require.NoError(t, b.Take(t.Context(), "b", nodesResource))
		require.Equal(t, 500*time.Millisecond, time.Since(start).Round(time.Millisecond), "the token was not spent")
	})
}

func TestReadIsWithinBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := schema.GroupResource{Resource: "nodes"}
		b := NewBudget(1, 2)
		var reads atomic.Int32
		read := func(context.Context) error { reads.Add(1); return apierrors.NewNotFound(nodes, "n") }
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		for range 3 {
			require.Error(t, b.Read(ctx, "a", nodes, read))
		}
		require.EqualValues(t, 2, reads.Load())
	})
}

// What a read waits for the budget takes nothing from the time that it has for its request.
func TestALiveReadHasItsTimeForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1, 1)
		require.NoError(t, b.Take(t.Context(), "other", nodesResource))
		took := func(request time.Duration) error {
			return b.ReadWithin(t.Context(), "a", nodesResource, 2*time.Second, 2*time.Second, func(ctx context.Context) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(request):
					return nil
				}
			})
		}
		require.NoError(t, took(1500*time.Millisecond), "after a second for the budget")
		require.ErrorIs(t, took(2500*time.Millisecond), context.DeadlineExceeded)
	})
}

// A machine with little to spare may come to look for a token after the wait is over: one that is there is taken, and one that is not is not waited for.
func TestATokenThatIsThereNeedsNoWait(t *testing.T) {
	b := NewBudget(1e-9, 1)
	reads := 0
	read := func(context.Context) error { reads++; return nil }
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.ReadWithin(ended, "a", nodesResource, 0, time.Minute, read), context.Canceled, "whoever asks has gone")
	require.NoError(t, b.ReadWithin(t.Context(), "a", nodesResource, 0, time.Minute, read))
	require.ErrorIs(t, b.ReadWithin(t.Context(), "a", nodesResource, 0, time.Minute, read), context.DeadlineExceeded)
	require.Equal(t, 1, reads)
}

func TestOutcomes(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for want, err := range map[string]error{
		readOK:        nil,
		readNotFound:  apierrors.NewNotFound(nodes, "n"),
		readForbidden: apierrors.NewForbidden(nodes, "n", nil),
		readThrottled: apierrors.NewTooManyRequests("later", 1),
		readError:     apierrors.NewGenericServerResponse(http.StatusInternalServerError, "get", nodes, "n", "", 0, false),
	} {
		require.Equal(t, want, outcome(err))
	}
}

// The log says once for each controller and resource that it may not be read live.
func TestAForbiddenReadIsLoggedOnce(t *testing.T) {
	var lines []string
	ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	b := NewBudget(DefaultRate, DefaultBurst)
	forbidden := func(context.Context) error { return apierrors.NewForbidden(nodesResource, "n", nil) }
	for range 3 {
		require.Error(t, b.Read(ctx, "endpointslice", nodesResource, forbidden))
		require.Error(t, b.Read(ctx, "node-lifecycle", nodesResource, forbidden))
	}
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], "build/manifests/rbac.yaml")
}
