// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// An owner that has written a revision which no cache shows makes a pod for one that goes. If its template changes once more, ours waits, for a limited time: the next revision might
// get the number of the first. Upstream waits for no revisions.
func TestRevisionsThatAreNotSeen(t *testing.T) {
	for _, kind := range []string{"DaemonSet", "StatefulSet"} {
		for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
			t.Run(kind+" "+string(arm), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					name := strings.ToLower(kind)
					server, f, tr, manager := start(t, arm, schedule.Schedule{Nodes: 3, Owners: []schedule.Owner{{Kind: kind, Name: name, Replicas: 3}}})
					pods := func() sets.Set[types.UID] {
						live := sets.Set[types.UID]{}
						server.Look(func(truth model.Truth) {
							for _, pod := range truth.List(model.Pods) {
								if pod.GetDeletionTimestamp() == nil {
									live.Insert(pod.GetUID())
								}
							}
						})
						return live
					}
					time.Sleep(2 * time.Minute)
					require.Len(t, pods(), 3)
					f.Do(schedule.Step{Action: schedule.Hold, Target: "controllerrevisions", For: 30 * time.Minute}, tr.After)
					tr.Do(schedule.Step{Action: schedule.Roll, Target: name})
					repairs := func() {
						before := pods()
						tr.Do(schedule.Step{Action: schedule.DeletePod, Target: name, N: 1})
						time.Sleep(5 * time.Second)
						require.Len(t, pods(), 3)
						require.Len(t, pods().Difference(before), 1, "one is gone, and another has come")
					}
					time.Sleep(10 * time.Second)
					repairs()
					tr.Do(schedule.Step{Action: schedule.Roll, Target: name, At: time.Second}) // to another template
					time.Sleep(time.Minute)
					if arm == arms.Ours {
						require.Contains(t, reasons(manager), stalenessz.ForUnseen, "the page shows what waits")
					}
					time.Sleep(5 * time.Minute)
					require.NotContains(t, reasons(manager), stalenessz.ForUnseen)
					repairs()
				})
			})
		}
	}
}

// reasons are those for which owners wait.
func reasons(manager *arms.Manager) (reasons []string) {
	for _, w := range manager.Waits() {
		reasons = append(reasons, w.Reason)
	}
	return reasons
}

// What watches bring of an owner itself is late. Its pods are repaired and rolled as soon as on stock, which waits for no write to it either, with fewer writes.
func TestOwnersWhoseOwnEventsAreLate(t *testing.T) {
	for kind, change := range map[string]schedule.Step{"Deployment": {Action: schedule.Roll}, "ReplicationController": {Action: schedule.DeletePod}} {
		t.Run(kind, func(t *testing.T) {
			s := schedule.Schedule{Nodes: 4, Monitor: true, Settle: 3 * time.Minute, Owners: []schedule.Owner{{Kind: kind, Name: "owner", Replicas: 9}}, Steps: []schedule.Step{
				{At: time.Minute, Action: schedule.Late, Target: strings.ToLower(kind) + "s", Delay: 10 * time.Second, For: 5 * time.Minute},
			}}
			for i := range 3 {
				change.At, change.Target, change.N = 70*time.Second+time.Duration(i)*3*time.Second, "owner", i
				s.Steps = append(s.Steps, change)
			}
			stock, ours := both(t, s)
			owner := validate.Owners(s)[0]
			require.NotZero(t, ends(stock.Undone[owner]))
			require.LessOrEqual(t, ends(ours.Undone[owner]), ends(stock.Undone[owner])+time.Second)
			require.LessOrEqual(t, ends(ours.Untold[owner]), ends(stock.Untold[owner])+time.Second)
			status := "update " + strings.ToLower(kind) + "s/status"
			require.LessOrEqual(t, ours.Requests[owner][status], stock.Requests[owner][status])
		})
	}
}
