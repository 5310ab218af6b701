// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package livereads

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// After a read that has failed a lane pauses, first for firstPause, and twice as long after each other, up to longestPause: the bounds that client-go's
// reflectors have.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// errPauses is for a read that is not made because the last ones have failed.
var errPauses = errors.New("live reads pause, because the last have failed")

// breaker is what is known of the reads of a lane that have failed in a row.
type breaker struct {
	// pause is how long it pauses after the last, until is when that ends, and probing says that one read finds out whether the next are answered.
	pause   time.Duration
	failed  time.Time
	until   time.Time
	probing bool
}

// Try makes one live read, with the timeout for itself, unless the budget is spent or the lane pauses: it does not wait. The server is asked once: client-go
// does not send the read again (AskOnce). Once a read has failed, the lane pauses, for as long as the server asks (a minute at most), or else for a second,
// and twice as long after each other that fails, up to 30 s. After the pause one read goes first.
func (b *Budget) Try(ctx context.Context, controller string, resource schema.GroupResource, timeout time.Duration, read func(context.Context) error) error {
	l := lane{controller, resource}
	began, begins := b.begins(l)
	if !begins {
		return errPauses
	}
	asked := &once{}
	err := b.ReadWithin(ctx, controller, resource, tryWait, timeout, func(ctx context.Context) error {
		asked.sent = true
		return read(context.WithValue(ctx, onceKey{}, asked))
	})
	b.ends(l, began, asked, err)
	return err
}

// tryWait is how long Try waits for the budget: not at all, but for other goroutines.
const tryWait = time.Millisecond

// Pauses reports whether the controller's reads of the resource pause.
func (b *Budget) Pauses(controller string, resource schema.GroupResource) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	br := b.breakers[lane{controller, resource}]
	return br != nil && time.Now().Before(br.until)
}

// begins returns the time, and whether a read may begin now. One that begins after a pause does so after the last failure.
func (b *Budget) begins(l lane) (at time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	br := b.breakers[l]
	if br == nil {
		return now, true
	}
	if br.probing || now.Before(br.until) {
		return now, false
	}
	br.probing = true
	return now, true
}

func (b *Budget) ends(l lane, began time.Time, asked *once, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	br := b.breakers[l]
	switch was := outcome(err); {
	case !asked.sent:
		if br != nil && began.After(br.failed) {
			br.probing = false // The budget was spent: it says nothing of the server.
		}
	case was == readOK || was == readNotFound:
		delete(b.breakers, l)
	case br == nil || began.After(br.failed): // Others that were under way count once.
		if br == nil {
			br = &breaker{}
			if b.breakers == nil {
				b.breakers = map[lane]*breaker{}
			}
			b.breakers[l] = br
		}
		br.probing, br.failed = false, time.Now()
		br.pause = min(max(firstPause, 2*br.pause), longestPause)
		br.until = br.failed.Add(max(br.pause, min(time.Duration(asked.after.Load()), RefusedHold)))
	}
}

type onceKey struct{}

// once is what the transport learns of a read that Try makes.
type once struct {
	sent  bool
	after atomic.Int64 // as long the server asks to wait, in nanoseconds
}

// AskOnce is the transport for clients whose reads Try makes: where the server is too busy client-go would send them again, ten times.
func AskOnce(next http.RoundTripper) http.RoundTripper { return askOnce{next} }

type askOnce struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a askOnce) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.next.RoundTrip(req)
	if asked, ok := req.Context().Value(onceKey{}).(*once); ok && resp != nil && resp.Header.Get("Retry-After") != "" {
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			asked.after.Store(int64(time.Duration(seconds) * time.Second))
		}
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (a askOnce) WrappedRoundTripper() http.RoundTripper { return a.next }
