// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package livereads

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

const (
	// DefaultRate and DefaultBurst of the live reads of a process. No guard spends them in ordinary
	// times: what is proven fresh needs no live read, and a guard whose cache is stale keeps to a
	// schedule of its own that is flat in the number of objects (node lifecycle: at most 30 pages of
	// leases a minute for 1,000 healthy nodes with held leases, B5; none once all dead nodes are
	// marked, B6). The budget bounds what is left, reads of single objects while nothing can be
	// proven: 60 a minute, a twentieth of what one controller's client may send by default (QPS 20),
	// and a burst that lets ten actions go on at once.
	DefaultRate  = rate.Limit(1)
	DefaultBurst = 10
)

// What comes of a live read, and of a wait for the budget, as metrics label it.
const (
	readOK        = "OK"
	readNotFound  = "NotFound"
	readForbidden = "Forbidden"
	readThrottled = "Throttled"
	readError     = "Error"

	served  = "Served"
	givenUp = "GivenUp"
)

// Budget is a token bucket over all live reads of the process. While it is spent, it serves one lane after
// another, so that none can starve the others: of n lanes with reads that wait,
// each gets every nth token, whatever the number of its reads. The reads of one resource by one controller
// are a lane; within it the order is that of the calls. All methods may be called concurrently.
type Budget struct {
	mu      sync.Mutex
	limiter *rate.Limiter
	// turns are the lanes that wait, the next to be served first.
	turns []lane
	queue map[lane][]*waiter
	timer *time.Timer // set while a read waits
	// forbidden are the lanes of which the log has said that they may not read.
	forbidden map[lane]bool
	// breakers are those of the lanes of which the last read that Try made has failed.
	breakers map[lane]*breaker
}

type lane struct {
	controller string
	resource   schema.GroupResource
}

type waiter struct{ served chan struct{} }

// NewBudget returns a full budget.
func NewBudget(limit rate.Limit, burst int) *Budget {
	return &Budget{limiter: rate.NewLimiter(limit, burst), queue: map[lane][]*waiter{}}
}

// Take waits for the right to one live read. The error wraps the cause of ctx's end; no token is then
// spent.
func (b *Budget) Take(ctx context.Context, controller string, resource schema.GroupResource) error {
	l := lane{controller, resource}
	if ctx.Err() != nil {
		return fmt.Errorf("waiting for the budget of live reads: %w", context.Cause(ctx))
	}
	b.mu.Lock()
	if b.free() {
		b.mu.Unlock()
		return nil
	}
	w := &waiter{served: make(chan struct{})}
	if len(b.queue[l]) == 0 {
		b.turns = append(b.turns, l)
	}
	b.queue[l] = append(b.queue[l], w)
	b.arm()
	b.mu.Unlock()
	select {
	case <-w.served:
	case <-ctx.Done():
		if b.leave(l, w) {
			metrics.BudgetWaits(controller, givenUp, 1)
			return fmt.Errorf("waiting for the budget of live reads: %w", context.Cause(ctx))
		}
	}
	metrics.BudgetWaits(controller, served, 1)
	return nil
}

// free takes a token that nobody waits for, if there is one. The mutex is held.
func (b *Budget) free() bool { return len(b.turns) == 0 && b.limiter.Allow() }

// Read makes one live read within the budget, and counts it by what came of it. The error is read's, or
// that of Take.
func (b *Budget) Read(ctx context.Context, controller string, resource schema.GroupResource, read func(context.Context) error) error {
	if err := b.Take(ctx, controller, resource); err != nil {
		return err
	}
	return b.send(ctx, controller, resource, read)
}

// send makes a live read that has its token.
func (b *Budget) send(ctx context.Context, controller string, resource schema.GroupResource, read func(context.Context) error) error {
	err := read(ctx)
	metrics.LiveReads(controller, resource, outcome(err), 1)
	if Forbidden(err) && b.firstForbidden(lane{controller, resource}) {
		klog.FromContext(ctx).Error(err, "The controller may not read live, so what it cannot prove waits; grant its account the verb that the error names, as build/manifests/rbac.yaml does",
			"controller", controller, "resource", resource)
	}
	return err
}

func (b *Budget) firstForbidden(l lane) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.forbidden[l] {
		return false
	}
	if b.forbidden == nil {
		b.forbidden = map[lane]bool{}
	}
	b.forbidden[l] = true
	return true
}

// ReadWithin makes a live read that waits for the budget for so long at most, and then has the timeout for itself. A token that is there it takes
// even if the wait is over before it looks, as on a machine with little to spare.
func (b *Budget) ReadWithin(ctx context.Context, controller string, resource schema.GroupResource, wait, timeout time.Duration, read func(context.Context) error) error {
	within := func(context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return read(ctx)
	}
	b.mu.Lock()
	begins := ctx.Err() == nil && b.free()
	b.mu.Unlock()
	if begins {
		return b.send(ctx, controller, resource, within)
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return b.Read(waiting, controller, resource, within)
}

// InitReads makes the series of a controller that may read the resources from the server exist at zero.
func InitReads(controller string, resources ...schema.GroupResource) {
	for _, r := range resources {
		for _, outcome := range []string{readOK, readNotFound, readForbidden, readThrottled, readError} {
			metrics.LiveReads(controller, r, outcome, 0)
		}
	}
	for _, outcome := range []string{served, givenUp} {
		metrics.BudgetWaits(controller, outcome, 0)
	}
}

// Spare reports whether no read waits and more than half of the burst is left, so that an optional read
// takes nothing from a necessary one.
func (b *Budget) Spare() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.turns) == 0 && b.limiter.Tokens() > float64(b.limiter.Burst())/2
}

// outcome is how metrics name the end of a live read.
func outcome(err error) string {
	switch {
	case err == nil:
		return readOK
	case apierrors.IsNotFound(err):
		return readNotFound
	case Forbidden(err):
		return readForbidden
	case apierrors.IsTooManyRequests(err):
		return readThrottled
	}
	return readError
}

// arm sets the timer for the next token. The mutex is held, and a read waits.
func (b *Budget) arm() {
	if b.timer != nil {
		return
	}
	missing := 1 - b.limiter.Tokens()
	wait := time.Duration(math.Ceil(missing / float64(b.limiter.Limit()) * float64(time.Second)))
	b.timer = time.AfterFunc(max(wait, 0), b.serve)
}

// serve gives out the tokens that are there, one to each lane in turn.
func (b *Budget) serve() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer = nil
	for len(b.turns) > 0 && b.limiter.Allow() {
		l := b.turns[0]
		b.turns = b.turns[1:]
		waiting := b.queue[l]
		close(waiting[0].served)
		if len(waiting) == 1 {
			delete(b.queue, l)
			continue
		}
		b.queue[l] = waiting[1:]
		b.turns = append(b.turns, l)
	}
	if len(b.turns) > 0 {
		b.arm()
	}
}

// leave takes a waiter out of the queue. It reports false if it was served meanwhile.
func (b *Budget) leave(l lane, w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.queue[l], w)
	if i < 0 {
		return false
	}
	b.queue[l] = slices.Delete(b.queue[l], i, i+1)
	if len(b.queue[l]) == 0 {
		delete(b.queue, l)
		b.turns = slices.DeleteFunc(b.turns, func(other lane) bool { return other == l })
	}
	return true
}
