// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

// Leadership says how the lock is held under which the controllers run; *leadership.Lock does.
type Leadership interface {
	// Renewed returns when the last renewal that succeeded was sent, or the zero time.
	Renewed() time.Time
}

// Lease is a lock that others take over when it was not renewed for its duration.
type Lease struct {
	Leadership
	Duration time.Duration
}

// leaderOnly is a transport that refuses to write for a process whose leader lease has run out: a process that was
// paused and goes on would otherwise send all that it had queued, beside its successor. It cannot stop a request that has
// left the process. Event writes are exempt.
type leaderOnly struct {
	next  http.RoundTripper
	at    endpoint
	lease Lease
}

// NotLeaderError says that a write was not sent.
type NotLeaderError struct {
	// Method and Path name the request.
	Method, Path string
	// Age is how long ago the lease was renewed, Duration how long it lasts.
	Age, Duration time.Duration
}

// Error implements error.
func (e *NotLeaderError) Error() string {
	return fmt.Sprintf("%s %s was not sent: the leader lease was renewed %s ago and lasts %s, so another process may lead by now",
		e.Method, e.Path, e.Age.Round(time.Millisecond), e.Duration)
}

// RoundTrip implements http.RoundTripper.
func (l leaderOnly) RoundTrip(req *http.Request) (*http.Response, error) {
	if age := sinceRenewal(l.lease.Renewed(), time.Now()); mutating.Has(req.Method) && age >= l.lease.Duration && !l.isEvent(req) {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		metrics.Refused()
		err := &NotLeaderError{Method: req.Method, Path: req.URL.Path, Age: age, Duration: l.lease.Duration}
		klog.FromContext(req.Context()).Error(err, "Refused a write: this process may no longer lead")
		return nil, err
	}
	return l.next.RoundTrip(req)
}

// sinceRenewal is how long ago the lease was renewed, by the clock that has gone on: the monotonic one counts
// while a process is stopped, but not while its machine sleeps, and the other may be set.
func sinceRenewal(renewed, now time.Time) time.Duration {
	return max(now.Sub(renewed), now.Round(0).Sub(renewed.Round(0)))
}

func (l leaderOnly) isEvent(req *http.Request) bool {
	info := l.at.resource(req)
	return info != nil && info.Resource == "events"
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (l leaderOnly) WrappedRoundTripper() http.RoundTripper { return l.next }
