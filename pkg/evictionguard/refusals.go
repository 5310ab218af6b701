// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// refusedEvery is how often evictions that were refused are tried, and refusedAtOnce how many of them at most. They share a proof.
const (
	refusedEvery  = 10 * time.Second
	refusedAtOnce = 5
)

// refusals spreads the tries of evictions that the server has refused: it will most likely refuse them again, and upstream
// never tries them again. All methods may be called concurrently.
type refusals struct {
	began time.Time

	mu sync.Mutex
	// turns counts the evictions in each turn to come, by how many times refusedEvery it is after began.
	turns map[int]int
}

func newRefusals() *refusals { return &refusals{began: time.Now(), turns: map[int]int{}} }

// turn is the next after a time that has room for one more, which it takes: the end of it gives it back.
func (r *refusals) turn(after time.Time) (at time.Time, end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := int(time.Since(r.began) / refusedEvery)
	maps.DeleteFunc(r.turns, func(turn, _ int) bool { return turn < now })
	turn := int(after.Sub(r.began)/refusedEvery) + 1
	for r.turns[turn] >= refusedAtOnce {
		turn++
	}
	r.turns[turn]++
	return r.began.Add(time.Duration(turn) * refusedEvery), sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.turns[turn] > 0 {
			r.turns[turn]--
		}
	})
}

// isRefusal reports whether the server has understood a request and does not want it, which it will say again if
// nothing else changes: 4xx but for 429, or an admission webhook, whatever code that chose.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := int(status.Status().Code)
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusTooManyRequests ||
		strings.HasPrefix(status.Status().Message, "admission webhook ") && strings.Contains(status.Status().Message, " denied the request")
}
