// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// While the cache has the predecessor still, its status is written to the DaemonSet that was made again, as on stock: upstream's controller gets the object of the name
// when its write is refused. It is right once the cache has what was made.
func TestTheStatusOfAPredecessorIsWrittenAsOnStock(t *testing.T) {
	const held = 20 * time.Second
	wrong := map[arms.Arm]time.Duration{}
	for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
		synctest.Test(t, func(t *testing.T) {
			o := schedule.Owner{Kind: "DaemonSet", Name: "owner"}
			server, f, tr, _ := start(t, arm, schedule.Schedule{Nodes: 3, Owners: []schedule.Owner{o}})
			for range 2 {
				time.Sleep(time.Minute)
				tr.Do(schedule.Step{Action: schedule.Roll, Target: "owner"})
			}
			time.Sleep(time.Minute)
			f.Do(schedule.Step{Action: schedule.Hold, Target: "daemonsets", For: held}, tr.After)
			server.Delete(model.DaemonSets, traffic.Namespace, "owner", new(int64(0)))
			tr.Make(o)
			tr.Do(schedule.Step{Action: schedule.Unready, Target: "owner", For: time.Minute})
			for range 60 {
				time.Sleep(time.Second)
				server.Look(func(truth model.Truth) {
					set := truth.Get(model.DaemonSets, traffic.Namespace, "owner").(*appsv1.DaemonSet)
					if set.Status.ObservedGeneration > set.Generation {
						wrong[arm] += time.Second
					}
				})
			}
		})
	}
	t.Logf("the status is wrong for: %v", wrong)
	require.LessOrEqual(t, wrong[arms.Ours], wrong[arms.Stock]+2*time.Second)
}
