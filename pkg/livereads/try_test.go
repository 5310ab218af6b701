// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package livereads

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

var errServer = errors.New("the server fails")

// While reads fail they become fewer, those of another resource go on, and one that is answered ends it.
func TestReadsThatFailPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(5, 20)
		sent, answer := 0, errServer
		try := func() error {
			return b.Try(t.Context(), "a", nodesResource, Timeout, func(context.Context) error { sent++; return answer })
		}
		var at []time.Duration
		began := time.Now()
		for time.Since(began) < 2*time.Minute {
			before := sent
			require.Error(t, try())
			if sent > before {
				at = append(at, time.Since(began))
			}
			require.NoError(t, b.Try(t.Context(), "a", leasesResource, Timeout, func(context.Context) error { return nil }))
			time.Sleep(500 * time.Millisecond)
		}
		require.Equal(t, []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second, 31 * time.Second, 61 * time.Second, 91 * time.Second}, at)
		require.True(t, b.Pauses("a", nodesResource))
		require.False(t, b.Pauses("b", nodesResource))
		time.Sleep(longestPause)
		answer = apierrors.NewNotFound(nodesResource, "n")
		require.Equal(t, answer, try(), "it is an answer")
		answer = errServer
		require.Equal(t, errServer, try(), "the pauses are over")
		time.Sleep(firstPause)
		require.Equal(t, errServer, try(), "and begin with the first")
	})
}

// Reads that were under way when one failed count once, and after a pause one finds out for all.
func TestOneReadGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(5, 20)
		var sent atomic.Int32
		for range 4 {
			for range 10 {
				go func() {
					_ = b.Try(t.Context(), "a", nodesResource, time.Second, func(ctx context.Context) error { sent.Add(1); <-ctx.Done(); return ctx.Err() })
				}()
			}
			time.Sleep(2 * time.Second)
		}
		require.EqualValues(t, 10+1+1, sent.Load(), "at 0 s, 2 s and 6 s")
	})
}

// A read that was about to begin when another failed, as in a process that is paused, gives its turn back when it fails, too.
func TestAReadThatIsLateToBeginKeepsNoTurn(t *testing.T) {
	b := NewBudget(5, 20)
	failing := func(context.Context) error { return errServer }
	ended := make(chan error)
	b.mu.Lock() // It has begun, and may not look at the lane yet.
	go func() { ended <- b.Try(t.Context(), "a", nodesResource, Timeout, failing) }()
	time.Sleep(100 * time.Millisecond)
	b.breakers = map[lane]*breaker{{"a", nodesResource}: {pause: firstPause, failed: time.Now(), until: time.Now()}}
	b.mu.Unlock()
	require.Equal(t, errServer, <-ended)
	b.mu.Lock()
	b.breakers[lane{"a", nodesResource}].until = time.Now() // The pause is over.
	b.mu.Unlock()
	require.NoError(t, b.Try(t.Context(), "a", nodesResource, Timeout, func(context.Context) error { return nil }))
}

// A spent budget says nothing of the server.
func TestASpentBudgetIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1, 1)
		require.NoError(t, b.Take(t.Context(), "other", nodesResource))
		require.Error(t, b.Try(t.Context(), "a", nodesResource, Timeout, func(context.Context) error { return nil }))
		require.False(t, b.Pauses("a", nodesResource))
		time.Sleep(time.Second)
		require.Equal(t, errServer, b.Try(t.Context(), "a", nodesResource, Timeout, func(context.Context) error { return errServer }))
		require.NoError(t, b.Take(t.Context(), "other", nodesResource))
		require.Error(t, b.Try(t.Context(), "a", nodesResource, Timeout, func(context.Context) error { return nil }), "nor does it end a pause")
		time.Sleep(time.Second)
		require.NoError(t, b.Try(t.Context(), "a", nodesResource, Timeout, func(context.Context) error { return nil }))
	})
}

// answering is a server without a connection, for the time of a bubble.
type answering func() *http.Response

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(req *http.Request) (*http.Response, error) {
	resp := a()
	resp.Request, resp.Body = req, http.NoBody
	return resp, nil
}

// A busy server is asked once, and not again before it wants to be. Others' reads it is asked for as client-go does.
func TestABusyServerIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		config := &rest.Config{Host: "http://server", Transport: answering(func() *http.Response {
			if asked++; asked%3 == 0 {
				return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}}
			}
			return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"1"}}}
		})}
		config.Wrap(AskOnce)
		client, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		get := func(ctx context.Context) error {
			_, err := client.CoreV1().Nodes().Get(ctx, "n", metav1.GetOptions{})
			return err
		}
		b := NewBudget(5, 20)
		began := time.Now()
		require.True(t, apierrors.IsTooManyRequests(b.Try(t.Context(), "a", nodesResource, Timeout, get)))
		require.Equal(t, 1, asked)
		require.Equal(t, errPauses, b.Try(t.Context(), "a", nodesResource, Timeout, get))
		require.Zero(t, time.Since(began))
		require.True(t, apierrors.IsNotFound(b.Read(t.Context(), "a", corev1.Resource("nodes"), get)))
		require.Equal(t, 3, asked)
	})
}

// The server's wish is heard, up to a minute.
func TestTheServerSaysHowLongToPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for wish, pause := range map[time.Duration]time.Duration{0: firstPause, 10 * time.Second: 10 * time.Second, time.Hour: RefusedHold} {
			b := NewBudget(5, 20)
			began := time.Now()
			require.Error(t, b.Try(t.Context(), "a", nodesResource, Timeout, func(ctx context.Context) error {
				ctx.Value(onceKey{}).(*once).after.Store(int64(wish))
				return errServer
			}))
			for b.Pauses("a", nodesResource) {
				time.Sleep(100 * time.Millisecond)
			}
			require.Equal(t, pause, time.Since(began))
		}
	})
}
