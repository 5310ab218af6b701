// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// relist has the nodes relisted, which shows what the server has and nothing of what was between.
func (e *evictions) relist() {
	h := e.nodes
	h.mu.Lock()
	old, begun := h.watch, h.begun
	h.watch, h.held, h.pending = watch.NewRaceFreeFake(), false, nil
	h.mu.Unlock()
	old.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
	for again := begun; again == begun; { // The reflector waits for a moment before it lists.
		time.Sleep(moment)
		h.mu.Lock()
		again = h.begun
		h.mu.Unlock()
	}
	e.settle()
}

func deadSince(at time.Time) corev1.Taint {
	return corev1.Taint{Key: "dead", Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: at}}
}

// TestTaintsShownByAList: a list shows a taint of another time in the place of the one that an eviction was scheduled for. It went
// and came back, so the tolerations count from the list; upstream counts them from the first. What is changed in place, and what a list
// shows as it was, has been there all the time.
func TestTaintsShownByAList(t *testing.T) {
	const tolerated, at = 5 * time.Minute, 260 * time.Second
	other := corev1.Taint{Key: "other", Effect: corev1.TaintEffectNoExecute}
	list := func(e *evictions, taints ...corev1.Taint) time.Time {
		e.nodes.hold()
		e.taint(taints...)
		e.relist()
		return time.Now()
	}
	again := func(e *evictions, _ corev1.Taint) time.Time {
		e.nodes.hold()
		e.taint()
		time.Sleep(9 * time.Second)
		return list(e, deadSince(time.Now()))
	}
	for name, tc := range map[string]struct {
		first func() corev1.Taint
		then  func(e *evictions, first corev1.Taint) (shown time.Time)
		anew  bool
	}{
		"taint of another time, by a list": {then: again, anew: true},
		"taint of another time, in place": {then: func(e *evictions, _ corev1.Taint) time.Time {
			e.taint(deadSince(time.Now()))
			return time.Now()
		}},
		"the same taint, by a list":   {then: func(e *evictions, first corev1.Taint) time.Time { return list(e, first) }},
		"another one more, by a list": {then: func(e *evictions, first corev1.Taint) time.Time { return list(e, first, other) }},
		"the same taint without a time, by a list": {first: func() corev1.Taint { return other },
			then: func(e *evictions, first corev1.Taint) time.Time { return list(e, first) }},
		"two lists": {then: func(e *evictions, first corev1.Taint) time.Time {
			shown := again(e, first)
			e.relist()
			return shown
		}, anew: true},
	} {
		for _, guarded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,guarded=%t", name, guarded), func(t *testing.T) {
				runEvictions(t, guarded, func(e *evictions) {
					first := deadSince(time.Now())
					if tc.first != nil {
						first = tc.first()
					}
					e.taint()
					e.pod("pod", "uid", tolerated)
					e.taint(first)
					tainted := time.Now()
					time.Sleep(at)
					shown := tc.then(e, first)
					if tc.anew && guarded {
						require.Equal(t, 1, e.after(time.Until(shown.Add(tolerated))-2*moment), "the taint is another since half a minute before the first would be due")
						require.Equal(t, 0, e.after(3*moment), "it is not put off for longer")
						return
					}
					require.Equal(t, 1, e.after(time.Until(tainted.Add(tolerated))-moment))
					require.Equal(t, 0, e.after(2*moment))
				})
			})
		}
	}
}

// What is kept of lists is of nodes that are tainted now.
func TestRelistedTaintsAreForgotten(t *testing.T) {
	runEvictions(t, true, func(e *evictions) {
		e.taint(deadSince(time.Now()))
		e.nodes.hold()
		time.Sleep(time.Second)
		e.taint(deadSince(time.Now()))
		e.relist()
		require.Len(t, e.guard.relists.since, 1)
		e.taint()
		e.relist()
		require.Empty(t, e.guard.relists.since)
		require.Nil(t, e.guard.relists.before)
	})
}
