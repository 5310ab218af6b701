// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// levelBackoff is for how long at most a rejection by API Priority and Fairness delays requests.
	levelBackoff = 2 * time.Second
	// outageShare of the time for which the server has refused a resource is the delay before the next
	// request, up to maxOutageBackoff: a thousand broken definitions come to some 30 requests a second,
	// and a resource that works again is noticed within that share of its outage. The built-in resources,
	// for which controllers wait, are only some tens.
	outageShare      = 0.06
	maxOutageBackoff = 30 * time.Second
	builtInBackoff   = 5 * time.Second
	// authorizing is how many 403 or 401 in a row may come from an apiserver that has just started and has
	// not read its roles yet. The next request follows after errorBackoff then.
	authorizing = 10
	// serving is for how long after a request has succeeded the server as a whole counts as working.
	serving = 5 * time.Second

	// maxPatience times Options.RequestTimeout is the longest that a request may take: enough for a server that needs 30 s.
	maxPatience = 4

	// Resources whose last request was refused share a third of the budget, and refusedSlots requests in
	// flight: a third of what kube-apiserver accepts on one connection (100), or has seats for at
	// the priority level of kube-controller-manager (98 of 600). The rest is for resources that work.
	refusedShare = 3
	refusedSlots = 32
)

// backoff keeps the last failure of one kind of request of one resource, and until when no such request is sent. Guarded by the
// resource's mutex.
type backoff struct {
	until time.Time
	f     *failure
	row   int       // failures in a row
	since time.Time // of the first refusal among these while the server worked for others
	// seq is how many requests of all resources had been sent when it failed. lost is true if the server
	// had answered none of them shortly before.
	seq  uint64
	lost bool
}

// get returns the failure that takes the place of a request now, if there is one.
func (h *backoff) get(now time.Time) *failure {
	if h.f == nil || !now.Before(h.until) {
		return nil
	}
	f := *h.f
	f.retryAfter = h.until.Sub(now)
	return &f
}

// refused is true if the server, and not the way to it, has failed the last request.
func (h *backoff) refused() bool { return h.f != nil && h.f.refusal }

// set notes a failure, and how long to wait before the next request: most limits what is added to the server's Retry-After.
func (h *backoff) set(now time.Time, f *failure, most time.Duration, t *traffic) {
	seq, answered, succeeded := t.state()
	h.row++
	h.seq, h.lost = seq, now.Sub(answered) > errorBackoff
	switch {
	case f.refusal:
		if h.since.IsZero() || now.Sub(succeeded) > serving {
			h.since = now
		}
		if f.reason == ReasonForbidden && h.row <= authorizing {
			f.retryAfter = errorBackoff
		}
		grown := min(time.Duration(outageShare*float64(now.Sub(h.since))), most)
		f.retryAfter = max(f.retryAfter, grown)
	case f.reason == ReasonNoServer && h.row == 1:
		// The connection broke. The next request makes a new one.
		f.retryAfter = 0
	}
	h.f, h.until = f, now.Add(f.retryAfter)
}

// reconnected is true if the connection broke, and there is one again.
func (h *backoff) reconnected(t *traffic) bool {
	return h.f != nil && h.f.reason == ReasonNoServer && h.lost && t.answeredSince(h.seq)
}

// traffic is what all requests of the process have shown of the server.
type traffic struct {
	mu   sync.Mutex
	sent uint64
	// answered is the latest request that got any answer.
	answered              uint64
	answeredAt, succeeded time.Time
	// levels of API Priority and Fairness that have rejected a request, by UID.
	levels map[string]backoff

	connection connection
}

func (t *traffic) send() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent++
	return t.sent
}

func (t *traffic) state() (sent uint64, answered, succeeded time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent, t.answeredAt, t.succeeded
}

func (t *traffic) answeredSince(seq uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answered > seq
}

// ended notes how a request ended. It returns true if the connection should be left.
func (t *traffic) ended(seq uint64, sent, now time.Time, f *failure, builtIn bool) (leave bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case f == nil:
		t.succeeded = now
		t.connection.succeeded()
	case builtIn && f.lost():
		leave = t.connection.failed(seq, t.sent, sent, now, t.succeeded)
	}
	if f == nil || f.reason != ReasonNoServer && f.reason != ReasonTimeout {
		t.answered, t.answeredAt = max(t.answered, seq), now
	}
	return leave
}

// reject delays all requests of the priority level that has rejected one.
func (t *traffic) reject(now time.Time, f *failure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.levels == nil {
		t.levels = map[string]backoff{}
	}
	t.levels[f.level] = backoff{f: f, until: now.Add(f.retryAfter)}
}

func (t *traffic) rejected(now time.Time, level string) *failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, ok := t.levels[level]
	if !ok {
		return nil
	}
	f := h.get(now)
	if f == nil {
		delete(t.levels, level)
	}
	return f
}

// builtIn is true for what kube-apiserver itself serves: no other server can have answered.
func builtIn(gvr schema.GroupVersionResource) bool { return scheme.Scheme.IsGroupRegistered(gvr.Group) }

// turn is a request that may be sent. The caller of admit must call its end.
type turn struct {
	r       *resource
	backoff *backoff
	sent    time.Time
	seq     uint64
	slot    bool // of refusedSlots
}

// admit decides whether a request may be sent now. A 429 concerns its resource alone: kube-apiserver also
// answers it for a resource whose watch cache is not ready, such as a custom resource whose conversion
// webhook is down, for as long as that lasts and with a Retry-After of up to 30 s. Only a rejection by
// API Priority and Fairness concerns all requests of its priority level.
func (p *Prover) admit(ctx context.Context, h *backoff, r *resource) (*turn, *failure) {
	now := time.Now()
	r.mu.Lock()
	f := h.get(now)
	if f != nil && (f.awaits != "" && Passed(r.sample(), f.awaits) || h.reconnected(&p.traffic)) {
		f = nil
	}
	refused, level := h.refused(), r.level
	r.mu.Unlock()
	if f == nil {
		f = p.traffic.rejected(now, level)
	}
	if f != nil {
		f.again, f.err = true, fmt.Errorf("not repeated so soon: %w", f.err)
		return nil, f
	}
	t := &turn{r: r, backoff: h}
	if refused {
		if f := t.enterRefused(ctx, now); f != nil {
			return nil, f
		}
	}
	if f := take(ctx, p.client.budget); f != nil {
		t.leave()
		return nil, f
	}
	t.seq, t.sent = p.traffic.send(), time.Now()
	return t, nil
}

// take waits for a token of a budget. It fails at once if it would wait for longer than budgetWait.
func take(ctx context.Context, budget *rate.Limiter) *failure {
	token := budget.Reserve()
	wait := token.Delay()
	switch {
	case wait == 0:
		return nil
	case wait > budgetWait:
		token.Cancel()
		return &failure{reason: reasonBudgetSpent, retryAfter: wait, err: fmt.Errorf("budget of requests is spent for %s", wait)}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return &failure{reason: ReasonTimeout, err: fmt.Errorf("waiting for the budget of requests: %w", context.Cause(ctx))}
	}
}

// enterRefused takes a token and a slot of those that refused resources share. While the server answers no
// resource, there is none for which to keep the slots.
func (t *turn) enterRefused(ctx context.Context, now time.Time) *failure {
	p := t.r.p
	if f := take(ctx, p.refusedBudget); f != nil {
		return f
	}
	if _, _, succeeded := p.traffic.state(); now.Sub(succeeded) > serving {
		return nil
	}
	timer := time.NewTimer(budgetWait)
	defer timer.Stop()
	select {
	case p.refusedSlots <- struct{}{}:
		t.slot = true
		return nil
	case <-timer.C:
		return &failure{reason: reasonBudgetSpent, retryAfter: errorBackoff, err: fmt.Errorf("%d requests are under way for resources that were refused", refusedSlots)}
	case <-ctx.Done():
		return &failure{reason: ReasonTimeout, err: fmt.Errorf("waiting to send a request: %w", context.Cause(ctx))}
	}
}

// bePatient gives the next request of a built-in resource twice the time if this one took too long, until one needs less
// than half of the usual time. It does not for resources behind a webhook or another server: many of them may hang without end. mu
// must be held.
func (r *resource) bePatient(took time.Duration, f *failure) {
	usual := r.p.opts.RequestTimeout
	switch had := max(r.patience, usual); {
	case f != nil && f.reason == ReasonTimeout && took >= had && builtIn(r.gvr):
		r.patience = min(2*had, maxPatience*usual)
	case f == nil && took < usual/2:
		r.patience = 0
	}
}

func (t *turn) leave() {
	if t.slot {
		<-t.r.p.refusedSlots
		t.slot = false
	}
}

// end notes how the request ended, for the next one to wait if it would fail, too.
func (t *turn) end(ctx context.Context, f *failure) {
	t.leave()
	p := t.r.p
	now := time.Now()
	if p.traffic.ended(t.seq, t.sent, now, f, builtIn(t.r.gvr)) && p.ctx.Err() == nil {
		p.client.leave(ctx, f)
	}
	if f != nil && f.overload && builtIn(t.r.gvr) {
		f.refusal = false
		p.traffic.reject(now, f)
	}
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.r.bePatient(now.Sub(t.sent), f)
	if f == nil {
		*t.backoff = backoff{}
		return
	}
	most := maxOutageBackoff
	if builtIn(t.r.gvr) {
		most = builtInBackoff
	}
	t.backoff.set(now, f, most, &p.traffic)
}
