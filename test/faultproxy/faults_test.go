// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

func TestTransparentWithoutFaults(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		n, p := h.watch(t, "nodes"), h.watch(t, "pods")
		h.api.send("nodes", watch.Added, "n1")
		h.api.send("nodes", watch.Bookmark, "")
		client := h.proxy.Watches()[0].Request.Client
		rv := h.api.send("nodes", watch.Deleted, "n1")
		n.require(t, "ADDED n1", "BOOKMARK", "DELETED n1")
		h.requireUntouched(t, p)
		eventually(t, "progress is level", func() bool { return h.proxy.Progress(nodes).Delivered.ResourceVersion == rv })
		pr := h.proxy.Progress(nodes)
		require.Equal(t, rv, pr.Sent.ResourceVersion)
		require.False(t, pr.Delivered.Time.Before(pr.Sent.Time))
		require.Zero(t, h.proxy.WaitingSince(nodes, client))

		close(h.api.open("nodes")[0].end)
		eventually(t, "the backend's end reaches the client", n.isClosed)
		require.Len(t, n.got(), 3, "a clean end must not look like an error")
		require.Empty(t, h.proxy.Journal())
	})
}

func TestBackendAbortReachesTheClient(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		n, p := h.watch(t, "nodes"), h.watch(t, "pods")
		h.api.send("nodes", watch.Added, "n1")
		n.require(t, "ADDED n1")
		close(h.api.open("nodes")[0].abort)
		eventually(t, "the client's stream is over", n.isClosed)
		require.Equal(t, "ERROR", n.got()[1], "a cut stream must not look like a clean end")
		h.requireUntouched(t, p)
	})
}

// What is no change of an object is not what a fault is injected for.
func TestTouched(t *testing.T) {
	held := func(frames int, events map[watch.EventType]int) Tally { return Tally{Frames: frames, Events: events} }
	quiet := held(4, map[watch.EventType]int{watch.Bookmark: 2, watch.Error: 1}) // and the end of a stream
	busy := held(9, map[watch.EventType]int{watch.Bookmark: 2, watch.Added: 1, watch.Modified: 2, watch.Deleted: 3, "": 1})
	for name, tc := range map[string]struct {
		stats Stats
		want  int
	}{
		"nothing":                          {Stats{Effect: "Hold"}, 0},
		"bookmarks, an error and an end":   {Stats{Effect: "Hold", Held: quiet}, 0},
		"changes":                          {Stats{Effect: "Hold", Held: busy}, 6},
		"held and then dropped":            {Stats{Effect: "Hold", Held: busy, Dropped: busy}, 6},
		"dropped":                          {Stats{Effect: "DropEvents", Dropped: busy}, 6},
		"rewritten":                        {Stats{Effect: "OpaqueRVs", Rewritten: busy, Requests: 2}, 8},
		"bookmarks rewritten":              {Stats{Effect: "OpaqueRVs", Rewritten: quiet}, 0},
		"doubled":                          {Stats{Effect: "DoubleEvents", Doubled: busy}, 6},
		"out of order":                     {Stats{Effect: "ReorderEvents", Swapped: busy}, 6},
		"requests":                         {Stats{Effect: "TooManyRequests", Requests: 3}, 3},
		"bookmarks, which the fault is of": {Stats{Effect: "SuppressBookmarks", Dropped: quiet}, 4},
		"unread":                           {Stats{Effect: "StopReading", Held: held(1, nil)}, 1},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, tc.stats.Touched()) })
	}
	for _, effect := range []Effect{SuppressBookmarks{}, StopReading{}} {
		b, err := effect.behaviour()
		require.NoError(t, err)
		require.Equal(t, 1, Stats{Effect: b.kind, Held: held(1, nil)}.Touched(), b.kind)
	}
}

func TestHold(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		n, p := h.watch(t, "nodes"), h.watch(t, "pods")
		h.api.send("nodes", watch.Added, "n1")
		n.require(t, "ADDED n1")

		f := h.inject(t, Target{Resource: nodes}, Hold{})
		first := h.api.send("nodes", watch.Added, "n2")
		last := h.api.send("nodes", watch.Deleted, "n1")
		close(h.api.open("nodes")[0].end)
		eventually(t, "two events and the end are held", func() bool { return f.Stats().Held.Frames == 3 })
		h.requireUntouched(t, p)
		n.require(t, "ADDED n1")
		require.False(t, n.isClosed(), "the backend's end must be held too")

		s := f.Stats()
		require.Equal(t, map[watch.EventType]int{watch.Added: 1, watch.Deleted: 1}, s.Held.Events)
		require.Positive(t, s.Held.Bytes)
		require.Zero(t, s.Released.Frames)
		require.Equal(t, 1, s.Streams)
		require.Equal(t, []string{first, last}, []string{s.FirstHeldRV, s.LastHeldRV})
		pr := h.proxy.Progress(nodes)
		require.Equal(t, last, pr.Sent.ResourceVersion)
		require.NotEqual(t, last, pr.Delivered.ResourceVersion)
		client := h.proxy.Watches()[0].Request.Client
		since := h.proxy.WaitingSince(nodes, client)
		require.WithinRange(t, since, f.Stats().Since, time.Now())
		require.Zero(t, h.proxy.WaitingSince(nodes, "another"))

		f.Clear()
		n.require(t, "ADDED n1", "ADDED n2", "DELETED n1")
		eventually(t, "the end follows", n.isClosed)
		require.Equal(t, f.Stats().Held, f.Stats().Released)
		require.False(t, f.Stats().Until.IsZero())
		eventually(t, "nothing waits", func() bool { return h.proxy.WaitingSince(nodes, client).IsZero() })
		f.Clear()
	})
}

// An event that is sent again, because the client took up another watch, has waited since it was sent first.
func TestWaitingOutlivesTheStream(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		held := h.inject(t, Target{Resource: nodes}, Hold{})
		n := h.watch(t, "nodes")
		client := h.proxy.Watches()[0].Request.Client
		h.api.send("nodes", watch.Bookmark, "")
		h.api.send("nodes", watch.Added, "n1")
		eventually(t, "an event waits", func() bool { return !h.proxy.WaitingSince(nodes, client).IsZero() })
		since := h.proxy.WaitingSince(nodes, client)
		n.w.Stop()
		eventually(t, "the stream is gone", func() bool { return len(h.proxy.Watches()) == 0 })
		require.Equal(t, since, h.proxy.WaitingSince(nodes, client))
		n = h.watch(t, "nodes")
		h.api.send("nodes", watch.Added, "n2")
		eventually(t, "the next waits", func() bool { return held.Stats().Held.Events[watch.Added] == 2 })
		require.Equal(t, since, h.proxy.WaitingSince(nodes, client))
		held.Clear()
		n.require(t, "ADDED n2")
		eventually(t, "nothing waits", func() bool { return h.proxy.WaitingSince(nodes, client).IsZero() })
	})
}

// What was handed over on a stream that the client had ended by then has not arrived: it asks for it again.
func TestWaitingIsWhatTheClientAsksFor(t *testing.T) {
	w := newWaiting()
	req := Request{Resource: nodes, Client: "informers", ResourceVersion: "100"}
	key := waitingKey{nodes, "informers"}
	began := time.Now()
	sent := func(rv string, after time.Duration) {
		w.sent(req, Event{Type: watch.Added, ResourceVersion: rv}, began.Add(after))
	}
	w.opened(req, 1)
	sent("101", 1)
	sent("103", 3)
	sent("105", 5)
	w.delivered(req, 1, "103")
	require.Equal(t, began.Add(5), w.since(key))
	again := req
	again.ResourceVersion = "102"
	w.opened(again, 2)
	require.Equal(t, began.Add(3), w.since(key), "the client says that it has not got 103")
	w.delivered(req, 1, "105")
	require.Equal(t, began.Add(3), w.since(key), "nobody reads the older stream")
	sent("103", 9)
	w.delivered(req, 2, "105")
	require.Zero(t, w.since(key))
	for _, rv := range []string{"", "0", "200"} {
		other := req
		other.ResourceVersion = rv
		w.opened(other, 3)
		require.Zero(t, w.since(key), "asking from %q says nothing of what the client has", rv)
	}
}

func TestHoldMeetsNewStreams(t *testing.T) {
	initialEnd := map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	yes := true
	tests := []struct {
		name   string
		target Target
		effect Hold
		want   []string
		held   int
	}{
		{name: "initial events pass", target: Target{Resource: nodes}, want: []string{"ADDED n1", "BOOKMARK"}, held: 1},
		{name: "initial events held", target: Target{Resource: nodes}, effect: Hold{Lists: true}, want: []string{}, held: 3},
		{name: "running only", target: Target{Resource: nodes, Running: true}, want: []string{"ADDED n1", "BOOKMARK", "ADDED n2"}},
		{name: "other user agent", target: Target{Resource: nodes, UserAgent: "kubectl/v1"}, want: []string{"ADDED n1", "BOOKMARK", "ADDED n2"}},
		{name: "same user agent", target: Target{Resource: nodes, UserAgent: "kube-controller-manager/v1.37.0"}, want: []string{"ADDED n1", "BOOKMARK"}, held: 1},
		{
			name:   "predicate",
			target: Target{Resource: nodes, Match: func(r Request) bool { return !r.SendInitialEvents }},
			want:   []string{"ADDED n1", "BOOKMARK", "ADDED n2"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			inBothEncodings(t, func(t *testing.T, h *harness) {
				p := h.watch(t, "pods")
				f := h.inject(t, tc.target, tc.effect)
				n := h.watchWith(t, "nodes", metav1.ListOptions{
					SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
				})
				h.api.send("nodes", watch.Added, "n1")
				h.api.sendPadded("nodes", watch.Bookmark, "", 0, initialEnd)
				h.api.send("nodes", watch.Added, "n2")
				eventually(t, "frames are held", func() bool { return f.Stats().Held.Frames == tc.held })
				n.require(t, tc.want...)
				h.requireUntouched(t, p)
				n.require(t, tc.want...)
				f.Clear()
				n.require(t, "ADDED n1", "BOOKMARK", "ADDED n2")
			})
		})
	}
}

func TestDelay(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		n, p := h.watch(t, "nodes"), h.watch(t, "pods")
		const by = 150 * time.Millisecond
		f := h.inject(t, Target{Resource: nodes}, Delay{By: by})
		sent := time.Now()
		h.api.send("nodes", watch.Added, "n1")
		h.api.send("nodes", watch.Modified, "n1")
		n.require(t, "ADDED n1", "MODIFIED n1")
		require.GreaterOrEqual(t, n.timeOf(0).Sub(sent), by)

		require.NoError(t, f.SetDelay(time.Hour))
		h.api.send("nodes", watch.Modified, "n1")
		close(h.api.open("nodes")[0].end)
		eventually(t, "frame and end wait", func() bool { return f.Stats().Held.Frames == 4 })
		h.requireUntouched(t, p)
		require.Len(t, n.got(), 2)
		require.False(t, n.isClosed())
		require.NoError(t, f.SetDelay(0))
		n.require(t, "ADDED n1", "MODIFIED n1", "MODIFIED n1")
		eventually(t, "the end follows", n.isClosed)
		require.Equal(t, 4, f.Stats().Released.Frames)

		require.Error(t, f.SetDelay(-1))
		hold := h.inject(t, Target{Resource: nodes}, Hold{})
		require.ErrorContains(t, hold.SetDelay(1), "Hold")
	})
}

func TestStopReading(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		n, p := h.watch(t, "nodes"), h.watch(t, "pods")
		f := h.inject(t, Target{Resource: nodes}, StopReading{})
		w := h.api.open("nodes")[0]
		const frames, size = 64, 32 << 10 // 2 MiB: far more than the stream's window and the server's buffers
		for range frames {
			h.api.sendPadded("nodes", watch.Modified, "n1", size, nil)
		}
		// As much again as the stalled stream holds goes past it on the same connections.
		for range frames {
			h.api.sendPadded("pods", watch.Modified, "p1", size, nil)
		}
		eventually(t, "the other stream has all", func() bool { return len(p.got()) == frames })
		h.requireUntouched(t, p)
		require.Empty(t, n.got())
		require.Less(t, w.writtenSoFar(), frames/2, "the backend must feel the back-pressure")
		require.LessOrEqual(t, f.Stats().Held.Frames, 1)
		f.Clear()
		eventually(t, "everything is delivered", func() bool { return len(n.got()) == frames })
	})
}

func TestDropStream(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		n, p := h.watch(t, "nodes"), h.watch(t, "pods")
		w := h.api.open("nodes")[0]
		f := h.inject(t, Target{Resource: nodes, Running: true}, DropStream{})
		select {
		case <-w.gone:
		case <-time.After(3 * time.Minute):
			require.Fail(t, "the backend's stream was not abandoned")
		}
		h.requireUntouched(t, p)
		require.False(t, n.isClosed(), "the client's stream must stay open")
		require.Empty(t, n.got())
		require.Equal(t, 1, f.Stats().Streams)

		// A reconnect heals, because only the running stream was targeted.
		again := h.watch(t, "nodes")
		h.api.send("nodes", watch.Added, "n1")
		again.require(t, "ADDED n1")
		require.Empty(t, n.got())
		f.Clear()
		eventually(t, "the half-open stream ends", n.isClosed)
		require.False(t, again.isClosed())
	})
}

func TestFilters(t *testing.T) {
	tests := []struct {
		name    string
		effect  Effect
		dropped int
		want    []string
	}{
		{name: "bookmarks but the initial one", effect: SuppressBookmarks{}, dropped: 1, want: []string{"BOOKMARK", "ADDED n1", "ADDED n2", "DELETED n1", "ADDED n3"}},
		{name: "next event", effect: DropEvents{Count: 1}, dropped: 1, want: []string{"BOOKMARK", "BOOKMARK", "ADDED n2", "DELETED n1", "ADDED n3"}},
		{
			name:    "one delete by uid",
			effect:  DropEvents{Count: 1, Match: func(e Event) bool { return e.Type == watch.Deleted && e.UID == "uid-n1" && e.Name == "n1" }},
			dropped: 1,
			want:    []string{"BOOKMARK", "ADDED n1", "BOOKMARK", "ADDED n2", "ADDED n3"},
		},
		{name: "all events", effect: DropEvents{}, dropped: 4, want: []string{"BOOKMARK", "BOOKMARK"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			inBothEncodings(t, func(t *testing.T, h *harness) {
				n, p := h.watch(t, "nodes"), h.watch(t, "pods")
				f := h.inject(t, Target{Resource: nodes}, tc.effect)
				h.api.sendPadded("nodes", watch.Bookmark, "", 0, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
				h.api.send("nodes", watch.Added, "n1")
				h.api.send("nodes", watch.Bookmark, "")
				h.api.send("nodes", watch.Added, "n2")
				h.api.send("nodes", watch.Deleted, "n1")
				h.api.send("nodes", watch.Added, "n3")
				eventually(t, "all frames have arrived", func() bool { return f.Stats().Seen.Frames == 6 })
				n.require(t, tc.want...)
				h.requireUntouched(t, p)
				n.require(t, tc.want...)
				s := f.Stats()
				require.Equal(t, tc.dropped, s.Dropped.Frames)
				require.NotEmpty(t, s.FirstHeldRV)
				require.Equal(t, len(tc.want), s.Seen.Frames-s.Dropped.Frames)
			})
		})
	}
}

func TestFiltersComposeWithDelay(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		n, p := h.watch(t, "nodes"), h.watch(t, "pods")
		h.inject(t, Target{Resource: nodes}, SuppressBookmarks{})
		d := h.inject(t, Target{Resource: nodes}, Delay{By: time.Hour})
		hold := h.inject(t, Target{Resource: nodes}, Hold{})
		h.api.send("nodes", watch.Bookmark, "")
		h.api.send("nodes", watch.Added, "n1")
		eventually(t, "both keep the event", func() bool { return d.Stats().Held.Frames == 1 && hold.Stats().Held.Frames == 1 })
		hold.Clear()
		h.requireUntouched(t, p)
		require.Empty(t, n.got(), "the delay is still in force")
		d.Clear()
		n.require(t, "ADDED n1")
	})
}

func TestGone(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		n, p := h.watch(t, "nodes"), h.watch(t, "pods")
		hold := h.inject(t, Target{Resource: nodes}, Hold{})
		h.api.send("nodes", watch.Added, "n1")
		eventually(t, "the event is held", func() bool { return hold.Stats().Held.Frames == 1 })
		f := h.inject(t, Target{Resource: nodes}, Gone{Resumed: true})
		requireExpired := func(w *clientWatch) {
			w.require(t, "ERROR")
			err := apierrors.FromObject(w.last().Object)
			require.True(t, apierrors.IsResourceExpired(err), "%v", err)
			eventually(t, "the stream ends", w.isClosed)
		}
		requireExpired(n)
		require.Equal(t, 1, hold.Stats().Dropped.Frames)
		hold.Clear()

		w, err := h.client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: "100"})
		require.NoError(t, err)
		requireExpired(collect(t, w))
		require.Equal(t, 1, f.Stats().Requests)
		h.watchWith(t, "nodes", metav1.ListOptions{ResourceVersion: "0"}) // from scratch: not refused
		f.Clear()
		again := h.watch(t, "nodes")
		h.api.send("nodes", watch.Added, "n2")
		again.require(t, "ADDED n2")
		h.requireUntouched(t, p)
	})
}

func TestAnswers(t *testing.T) {
	tests := []struct {
		name   string
		effect Effect
		check  func(error) bool
		code   int
	}{
		{name: "too large resource version", effect: TooLargeRV{Current: 7, Count: 1}, code: http.StatusGatewayTimeout, check: func(err error) bool {
			return apierrors.IsTimeout(err) && apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
		}},
		{name: "too many requests", effect: TooManyRequests{RetryAfter: time.Second, Count: 1}, code: http.StatusTooManyRequests, check: apierrors.IsTooManyRequests},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			inBothEncodings(t, func(t *testing.T, h *harness) {
				p := h.watch(t, "pods")
				before := h.proxy.Requests()
				f := h.inject(t, Target{Resource: nodes}, tc.effect)
				_, err := h.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{ResourceVersion: "900"})
				require.NoError(t, err, "client-go waits for Retry-After and asks again")
				require.Equal(t, 1, f.Stats().Requests)
				got := h.proxy.Requests().Since(before)
				key := RequestKey{Verb: "list", Resource: nodes, UserAgent: "kube-controller-manager/v1.37.0"}
				refused, served := key, key
				refused.Code, served.Code = tc.code, http.StatusOK
				require.Equal(t, Counts{refused: 1, served: 1}, got)
				f.Clear()

				// Seen without client-go's own retries.
				f = h.inject(t, Target{Resource: nodes}, tc.effect)
				res := h.raw(t, "/api/v1/nodes?resourceVersion=900")
				require.Equal(t, tc.code, res.code)
				require.Equal(t, "1", res.header.Get("Retry-After"))
				require.True(t, tc.check(res.err), "%v", res.err)
				require.Equal(t, 1, f.Stats().Requests)
				h.requireUntouched(t, p)
			})
		})
	}
}

func TestLostAnswers(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		p := h.watch(t, "pods")
		h.api.stored = func(_ *http.Request, body k8sruntime.Object) k8sruntime.Object { return body }
		create := func(name string) error {
			_, err := h.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		}
		executed := func() (n int) {
			for _, s := range h.api.requestsSeen() {
				if s.method == http.MethodPost {
					n++
				}
			}
			return n
		}
		f := h.inject(t, Target{Resource: nodes}, LoseAnswers{Count: 2})
		for want := range 2 {
			err := create("n")
			require.Error(t, err)
			var status apierrors.APIStatus
			require.False(t, errors.As(err, &status), "no answer of any kind: %v", err)
			require.Equal(t, want+1, executed(), "executed once: the client does not send it again by itself")
		}
		require.NoError(t, create("n"))
		require.Equal(t, 2, f.Stats().Requests)
		f.Clear()
		h.inject(t, Target{Resource: nodes}, LoseAnswers{Verbs: []string{"delete"}})
		require.NoError(t, create("n"))
		_, err := h.proxy.Inject(Target{Resource: nodes}, LoseAnswers{Verbs: []string{"watch"}})
		require.Error(t, err)
		h.requireUntouched(t, p)
	})
}

// An answer that ends in the middle is no list, whether the connection breaks or the end looks like one.
func TestCutAnswers(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		p := h.watch(t, "pods")
		h.api.stored = func(*http.Request, k8sruntime.Object) k8sruntime.Object {
			list := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}}
			for _, name := range []string{"n1", "n2", "n3"} {
				list.Items = append(list.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			return list
		}
		list := func() (*corev1.NodeList, error) {
			return h.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		}
		body := func() ([]byte, error) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.proxy.URL()+"/api/v1/nodes", nil)
			require.NoError(t, err)
			req.Header.Set("Accept", h.config.AcceptContentTypes)
			res, err := h.http.Do(req)
			require.NoError(t, err)
			defer res.Body.Close()
			return io.ReadAll(res.Body)
		}
		for _, whole := range []bool{false, true} {
			all, err := list()
			require.NoError(t, err)
			require.Len(t, all.Items, 3)
			f := h.inject(t, Target{Resource: nodes}, CutAnswers{After: 80, Whole: whole, Count: 2})
			got, err := list()
			require.Error(t, err, "half a list is none: %v", got)
			raw, err := body()
			require.Equal(t, 2, f.Stats().Requests)
			require.Len(t, raw, 80)
			if whole {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			}
			_, err = list()
			require.NoError(t, err, "so many were cut, and no more")
			f.Clear()
			f = h.inject(t, Target{Resource: nodes}, CutAnswers{After: 1 << 20, Whole: whole})
			_, err = list()
			require.NoError(t, err)
			require.Zero(t, f.Stats().Requests, "an answer that is shorter is left alone")
			f.Clear()
		}
		for _, bad := range []Effect{CutAnswers{Verbs: []string{"watch"}}, CutAnswers{After: -1}} {
			_, err := h.proxy.Inject(Target{Resource: nodes}, bad)
			require.Error(t, err)
		}
		h.requireUntouched(t, p)
	})
}

// An event may come twice, or after the next one, which loses none.
func TestDoubledAndReorderedEvents(t *testing.T) {
	inBothEncodings(t, func(t *testing.T, h *harness) {
		n, p := h.watch(t, "nodes"), h.watch(t, "pods")
		twice := h.inject(t, Target{Resource: nodes}, DoubleEvents{})
		h.api.send("nodes", watch.Added, "n1")
		h.api.send("nodes", watch.Bookmark, "")
		h.api.send("nodes", watch.Deleted, "n1")
		want := []string{"ADDED n1", "ADDED n1", "BOOKMARK", "DELETED n1", "DELETED n1"}
		n.require(t, want...)
		require.Equal(t, map[watch.EventType]int{watch.Added: 1, watch.Deleted: 1}, twice.Stats().Doubled.Events)
		twice.Clear()

		swap := h.inject(t, Target{Resource: nodes}, ReorderEvents{Match: func(e Event) bool { return e.Name != "n9" && e.Type != watch.Bookmark }})
		h.api.send("nodes", watch.Added, "n1")
		h.requireUntouched(t, p)
		n.require(t, want...) // it waits for the next
		h.api.send("nodes", watch.Modified, "n1")
		h.api.send("nodes", watch.Added, "n2")
		h.api.send("nodes", watch.Added, "n3")
		want = append(want, "MODIFIED n1", "ADDED n1", "ADDED n3", "ADDED n2")
		n.require(t, want...)
		require.Equal(t, 2, swap.Stats().Swapped.Frames)
		// What it does not select passes nothing.
		for _, between := range []string{"n9", ""} {
			h.api.send("nodes", watch.Modified, "n2")
			kind := watch.Modified
			if between == "" {
				kind = watch.Bookmark
			}
			h.api.send("nodes", kind, between)
			want = append(want, "MODIFIED n2", strings.TrimSpace(string(kind)+" "+between))
			n.require(t, want...)
		}
		rv := h.api.send("nodes", watch.Deleted, "n2")
		eventually(t, "the last has arrived", func() bool { return h.proxy.Progress(nodes).Sent.ResourceVersion == rv })
		swap.Clear()
		n.require(t, append(want, "DELETED n2")...)
		require.Equal(t, 2, swap.Stats().Swapped.Frames)
		h.requireUntouched(t, p)
	})
}
