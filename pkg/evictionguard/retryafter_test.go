// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAnEvictionThatTheServerPutsOffIsDecidedAgain: the server asks to send a deletion again after a while, and the taint goes meanwhile, or stays.
func TestAnEvictionThatTheServerPutsOffIsDecidedAgain(t *testing.T) {
	const busyFor, retryAfter = 10 * time.Second, "20"
	type arm struct{ guarded, goes bool }
	deleted, requests := map[arm]time.Duration{}, map[arm]int{}
	for of, left := range map[arm]int{{goes: true}: 0, {guarded: true, goes: true}: 1, {}: 0, {guarded: true}: 0} {
		t.Run(fmt.Sprintf("%+v", of), func(t *testing.T) {
			runSlowEvictions(t, of.guarded, false, 100*time.Millisecond, func(e *evictions, s *slowServer) {
				e.taint()
				e.pod("pod", "uid", 0)
				s.fail = func(w http.ResponseWriter, r *http.Request) bool {
					if r.Method != http.MethodDelete {
						return false
					}
					requests[of]++
					busy := time.Since(s.start) < busyFor
					if busy {
						w.Header().Set("Retry-After", retryAfter)
						w.WriteHeader(http.StatusTooManyRequests)
					}
					return busy
				}
				s.start = time.Now()
				e.taint(noExec("a"))
				require.Equal(t, 1, e.after(busyFor/2))
				if of.goes {
					e.taint()
				}
				require.Equal(t, left, e.after(5*time.Minute))
				s.mu.Lock()
				defer s.mu.Unlock()
				if len(s.deleted) > 0 {
					deleted[of] = s.deleted[0]
				}
			})
		})
	}
	require.LessOrEqual(t, requests[arm{guarded: true}], requests[arm{}])
	require.LessOrEqual(t, deleted[arm{guarded: true}], deleted[arm{}]+time.Second)
}
