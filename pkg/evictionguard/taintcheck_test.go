// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLostEvent: the event of the taint's removal never comes, while the cache is fresh otherwise.
func TestLostEvent(t *testing.T) {
	for name, tolerated := range map[string]time.Duration{"not tolerated": 0, "tolerated for a while": 10 * time.Second} {
		for guarded, left := range map[bool]int{false: 0, true: 20} {
			t.Run(fmt.Sprintf("%s,guarded=%t", name, guarded), func(t *testing.T) {
				runEvictions(t, guarded, func(e *evictions) {
					e.taint()
					if tolerated > 0 {
						e.pods20(tolerated)
					}
					e.taint(noExec("a"))
					e.nodes.hold()
					e.taint()
					e.nodes.skip()
					e.nodes.release()
					if tolerated == 0 {
						e.pods20(tolerated)
					}
					require.Equal(t, left, e.after(time.Minute))
					if !guarded {
						return
					}
					require.Equal(t, 20, e.after(time.Hour))
					require.LessOrEqual(t, e.reads, 5, "nobody asks again before the cache changes")
					e.taint(noExec("a"))
					require.Equal(t, 0, e.after(tolerated+maxEvictionDelay+moment), "evictions go on when the node is tainted again")
				})
			})
		}
	}
}

// A read from before the node was tainted again says nothing against that.
func TestAnOlderReadRefutesNoTaint(t *testing.T) {
	c := &nodeChecks{wrong: map[string]string{}}
	check := &nodeCheck{done: make(chan struct{}), live: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", ResourceVersion: "10"}}}
	close(check.done)
	for rv, refuted := range map[string]bool{"9": true, "10": false, "11": false} {
		require.Equal(t, refuted, c.refutes(t.Context(), check, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", ResourceVersion: rv}}), rv)
	}
}

func (e *evictions) pods20(tolerated time.Duration) {
	for i := range 20 {
		e.pod(fmt.Sprint("pod", i), fmt.Sprint("uid", i), tolerated)
	}
}
