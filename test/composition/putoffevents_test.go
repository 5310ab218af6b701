// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/kubernetes/pkg/controller"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// Where the server puts off the making or the deletion of pods, events tell of it as often as on stock: there the client sends each write eleven times before its controller hears of that.
func TestEventsTellOfWritesThatAreAllPutOff(t *testing.T) {
	for _, kind := range kinds {
		for _, c := range []struct {
			name    string
			work    schedule.Step
			trouble schedule.Action
		}{
			{"scaled down", schedule.Step{At: time.Minute, Action: schedule.Scale, Target: "owner", N: 2}, schedule.PutOff},
			{"scaled up", schedule.Step{At: time.Minute, Action: schedule.Scale, Target: "owner", N: 7}, schedule.TimeOut},
			{"loses a pod", schedule.Step{At: 58900 * time.Millisecond, Action: schedule.DeletePod, Target: "owner"}, schedule.TimeOut},
			{"rolled", schedule.Step{At: time.Minute, Action: schedule.Roll, Target: "owner"}, schedule.PutOff},
		} {
			if (kind == "DaemonSet") == (c.work.Action == schedule.Scale) {
				continue // Nobody scales a DaemonSet, and the others are scaled.
			}
			t.Run(fmt.Sprintf("%s %s, %s", kind, c.name, c.trouble), func(t *testing.T) {
				s := schedule.Schedule{Nodes: 3, Settle: 5 * time.Minute, Owners: []schedule.Owner{{Kind: kind, Name: "owner", Replicas: 4}}, Steps: []schedule.Step{
					c.work, {At: 59 * time.Second, Action: c.trouble, Target: "pods", N: 1, For: 5 * time.Minute}}}
				owner := validate.Owners(s)[0]
				stock, ours := run(t, arms.Stock, s, nil), run(t, arms.Ours, s, nil)
				t.Logf("stock: %v; ours: %v", stock.Events[owner], ours.Events[owner])
				told := func(events map[string]int) int {
					return events[controller.FailedCreatePodReason] + events[controller.FailedDeletePodReason]
				}
				was, is := told(stock.Events[owner]), told(ours.Events[owner])
				require.Greater(t, was, 5, "nothing was put off")
				require.GreaterOrEqual(t, is, was/3)
				require.LessOrEqual(t, is, was)
			})
		}
	}
}
