// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What an apiserver notes is read as of everybody else's clock, while its own is set and when it is right again.
func TestTimesOfAClockThatWasSet(t *testing.T) {
	for _, ahead := range []time.Duration{0, 30 * time.Minute, -30 * time.Minute} {
		t.Run(ahead.String(), func(t *testing.T) {
			clock := setClock{ahead, auditBegan.Add(ahead / 2)}
			later := auditBegan.Add(10 * time.Minute)
			require.Equal(t, later, clock.right(later.Add(ahead)), "by the clock that is set")
			require.Equal(t, later, clock.right(later), "by the clock that is right again")
			require.True(t, clock.right(time.Time{}).IsZero())
		})
	}
}
