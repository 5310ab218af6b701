// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// A dependent is orphaned, and somebody has it refer to its owner once more while that waits until it is proven that no other dependent is missing: it is orphaned again, whether its cache has shown that or not.
// On stock that owner is gone by then, and such a dependent is deleted.
func TestADependentThatRefersToItsWaitingOwnerAgain(t *testing.T) {
	for _, held := range []string{"configmaps", "widgets"} {
		for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
			t.Run(held+" held, "+string(arm), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server, f, tr, _ := start(t, arm, schedule.Schedule{Nodes: 2, Families: []schedule.Family{{Kind: "ReplicaSet", Name: "family", ConfigMaps: 1, Widgets: 1}}})
					time.Sleep(time.Minute)
					of := map[*model.Resource]model.Object{}
					server.Look(func(truth model.Truth) {
						for _, r := range []*model.Resource{model.ConfigMaps, model.Widgets} {
							of[r] = truth.List(r)[0]
						}
					})
					f.Do(schedule.Step{Action: schedule.Hold, Target: held, For: 20 * time.Second}, tr.After)
					time.Sleep(time.Second)
					tr.Do(schedule.Step{Action: schedule.RemoveOwner, Target: "family", N: 2})
					time.Sleep(5 * time.Second)
					for r, dependent := range of {
						model.Change(server, r, traffic.Namespace, dependent.GetName(), func(o model.Object) {
							require.Empty(t, o.GetOwnerReferences(), "it is not orphaned")
							o.SetOwnerReferences([]metav1.OwnerReference{dependent.GetOwnerReferences()[0]})
						})
					}
					time.Sleep(time.Minute)
					server.Look(func(truth model.Truth) {
						require.Nil(t, truth.Get(model.ReplicaSets, traffic.Namespace, "family"))
						for r, dependent := range of {
							now := truth.Get(r, traffic.Namespace, dependent.GetName())
							if arm == arms.Stock {
								require.Nil(t, now, r.Kind)
							} else {
								require.NotNil(t, now, r.Kind)
								require.Empty(t, now.GetOwnerReferences(), r.Kind)
							}
						}
					})
				})
			})
		}
	}
}
