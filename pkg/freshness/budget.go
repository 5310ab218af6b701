// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// budget is a token bucket kept as one time: when the bucket would be full again.
type budget struct {
	clock    clock.Clock
	interval time.Duration
	size     time.Duration
	maxWait  time.Duration

	mu     sync.Mutex
	fullAt time.Time
}

func newBudget(o Options, qps float64, burst int) *budget {
	interval := time.Duration(float64(time.Second) / qps)
	return &budget{clock: o.Clock, interval: interval, size: interval * time.Duration(burst), maxWait: budgetWait}
}

// take waits for a token. It fails at once if the wait would be longer than maxWait.
func (b *budget) take(ctx context.Context) *failure {
	b.mu.Lock()
	now := b.clock.Now()
	full := b.fullAt
	if full.Before(now) {
		full = now
	}
	full = full.Add(b.interval)
	wait := full.Sub(now) - b.size
	if wait > b.maxWait {
		b.mu.Unlock()
		return &failure{reason: reasonBudgetSpent, retryAfter: wait, err: fmt.Errorf("budget of requests is spent for %s", wait)}
	}
	b.fullAt = full
	b.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	timer := b.clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return &failure{reason: ReasonTimeout, err: fmt.Errorf("waiting for the budget of requests: %w", context.Cause(ctx))}
	}
}
