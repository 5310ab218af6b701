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

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

// An owner that has written a revision which no cache shows makes a pod for one that goes: upstream never waits for revisions, ours for a limited time.
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
					time.Sleep(time.Minute)
					if arm == arms.Ours {
						require.NotEmpty(t, manager.Waits(), "the page shows what waits")
					}
					time.Sleep(5 * time.Minute)
					before := pods()
					tr.Do(schedule.Step{Action: schedule.DeletePod, Target: name, N: 1})
					time.Sleep(5 * time.Second)
					require.Len(t, pods(), 3)
					require.Len(t, pods().Difference(before), 1, "one is gone, and another has come")
				})
			})
		}
	}
}
