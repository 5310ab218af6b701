// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

// The finalizer of an object that nothing uses is taken off after the longest wait, as it cannot be proven that nothing does. The cache has the object for as long
// as its watch brings nothing: its finalizer is not taken off again and again.
func TestFinalizerIsTakenOffOnce(t *testing.T) {
	const from, length = time.Minute, 20 * time.Minute
	for _, resource := range []string{"servicecidrs", "volumeattributesclasses", "podgroups"} {
		t.Run(resource, func(t *testing.T) {
			s := schedule.Schedule{Nodes: 2, Finalizers: true, Settle: 2 * time.Minute, Steps: []schedule.Step{
				{At: 40 * time.Second, Action: schedule.MakeProtected, Target: resource},
				{At: from - 2*time.Second, Action: schedule.Unprovable, For: length},
				{At: from - time.Second, Action: schedule.DeleteProtected, Target: resource},
				{At: from, Action: schedule.Hold, Target: resource, For: length},
			}}
			writes := map[arms.Arm]int{}
			for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
				run(t, arm, s, func(line string) {
					if strings.Contains(line, " "+resource+"/") && (strings.Contains(line, "patch ") || strings.Contains(line, "update ")) {
						writes[arm]++
					}
				})
			}
			t.Log(writes)
			require.Positive(t, writes[arms.Stock])
			require.LessOrEqual(t, writes[arms.Ours], writes[arms.Stock]+2)
		})
	}
}
