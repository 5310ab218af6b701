// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package livereads

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var confirmed = schema.GroupResource{Resource: "nodes"}

// However many ask, an object that is there is read once in a minute, and one that is not once in 5 s.
func TestSharedReadsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int32
		c := NewSharedReads(NewReads(t.Context(), "test", confirmed, NewBudget(DefaultRate, DefaultBurst), func(_ context.Context, key string) (string, error) {
			reads.Add(1)
			time.Sleep(10 * time.Millisecond)
			if key == "absent" {
				return "", apierrors.NewNotFound(confirmed, key)
			}
			return "found " + key, nil
		}))
		for key, want := range map[string]int32{"there": 2, "absent": 12} {
			reads.Store(0)
			for range 600 {
				var wg sync.WaitGroup
				for range 5 {
					wg.Go(func() {
						val, err := c.Get(key)
						require.Equal(t, key == "absent", apierrors.IsNotFound(err))
						require.Equal(t, key == "there", val == "found there")
					})
				}
				wg.Wait()
				time.Sleep(110 * time.Millisecond)
			}
			require.InDelta(t, want, reads.Load(), 2, key)
		}
	})
}

// Where the server does not answer, or the budget is spent, a reconcile with many such objects waits for a second and not for each.
func TestSharedReadsThatFailHoldNobodyUp(t *testing.T) {
	for name, test := range map[string]struct {
		burst int
		read  func(ctx context.Context) error
	}{
		"no answer": {DefaultBurst, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		"refused":   {DefaultBurst, func(context.Context) error { return errors.New("refused") }},
		"spent":     {0, func(context.Context) error { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				c := NewSharedReads(NewReads(ctx, "test", confirmed, NewBudget(DefaultRate, test.burst), func(ctx context.Context, _ string) (string, error) {
					return "", test.read(ctx)
				}))
				began := time.Now()
				for i := range 100 {
					_, err := c.Get(fmt.Sprint(i))
					require.Error(t, err)
				}
				require.LessOrEqual(t, time.Since(began), sharedPatience)
				cancel()
				synctest.Wait()
			})
		})
	}
}

// What is read too slowly for one who asks is there for the next, who comes when the read is too old to be shared.
func TestSharedReadsKeepWhatIsFoundLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int32
		c := NewSharedReads(NewReads(t.Context(), "test", confirmed, NewBudget(DefaultRate, DefaultBurst), func(_ context.Context, key string) (string, error) {
			reads.Add(1)
			time.Sleep(time.Second)
			return "found " + key, nil
		}))
		for key := range 3 {
			_, err := c.Get(fmt.Sprint(key))
			require.Error(t, err)
			time.Sleep(2 * time.Second)
		}
		time.Sleep(2 * Age)
		for key := range 3 {
			val, err := c.Get(fmt.Sprint(key))
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint("found ", key), val)
		}
		require.EqualValues(t, 3, reads.Load())
		time.Sleep(foundFor)
		_, err := c.Get("0")
		require.Error(t, err, "it is too old")
		time.Sleep(time.Second) // That read ends.
	})
}
