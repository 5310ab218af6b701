// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/faults"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// While the cache has the predecessor still, stock writes its status to the owner that was made again under its name: its controllers get the object of that name when the server
// refuses their write. Ours does not, asks no more often, and is done as soon.
func TestTheStatusOfAPredecessorIsNotWritten(t *testing.T) {
	const held, watched = 20 * time.Second, time.Minute
	type outcome struct {
		wrong    time.Duration // for how long the status said that a generation was observed that there is not yet
		done     time.Duration // since when the status has been that of the object itself
		requests int           // gets and writes of it
	}
	for kind, change := range map[string]schedule.Action{"DaemonSet": schedule.Roll, "ReplicaSet": schedule.Flip, "ReplicationController": schedule.Flip} {
		t.Run(kind, func(t *testing.T) {
			of := map[arms.Arm]*outcome{}
			for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
				got := &outcome{}
				of[arm] = got
				synctest.Test(t, func(t *testing.T) {
					o := schedule.Owner{Kind: kind, Name: "owner", Replicas: 3}
					history := schedule.Schedule{Nodes: 3, Owners: []schedule.Owner{o}}
					server := model.New()
					f, tr := faults.New(server), traffic.Start(server, history)
					server.Fate = f.Fate
					server.Changed = func(_ model.Truth, _ *model.Resource, old, now model.Object) { tr.Changed(old, now) }
					counts := false
					server.Observe = func(_ model.Truth, r *model.Request, done bool) {
						if counts && done && r.Resource == traffic.Kinds[kind] && (r.Write() || r.Verb == "get") {
							got.requests++
						}
					}
					manager, err := arms.Start(context.Background(), arm, server, flagsFor(history, nil))
					require.NoError(t, err)
					for range 2 {
						time.Sleep(time.Minute)
						tr.Do(schedule.Step{Action: change, Target: "owner", For: 10 * time.Second})
					}
					time.Sleep(time.Minute)
					f.Do(schedule.Step{Action: schedule.Hold, Target: traffic.Kinds[kind].GroupVersionResource.Resource, For: held}, tr.After)
					server.Look(func(model.Truth) { counts = true })
					server.Delete(traffic.Kinds[kind], traffic.Namespace, "owner", new(int64(0)))
					tr.Make(o)
					tr.Do(schedule.Step{Action: schedule.Unready, Target: "owner", For: time.Minute})
					for at := time.Second; at <= watched; at += time.Second {
						time.Sleep(time.Second)
						server.Look(func(truth model.Truth) {
							observed, generation := generations(truth.Get(traffic.Kinds[kind], traffic.Namespace, "owner"))
							if observed > generation {
								got.wrong += time.Second
							}
							if observed != generation {
								got.done = at + time.Second
							}
						})
					}
					tr.End()
					manager.End()
				})
			}
			stock, ours := of[arms.Stock], of[arms.Ours]
			t.Logf("stock %+v, ours %+v", *stock, *ours)
			require.GreaterOrEqual(t, stock.wrong, held/2, "stock goes wrong")
			require.Zero(t, ours.wrong)
			require.LessOrEqual(t, ours.done, stock.done)
			require.Less(t, ours.done, watched)
			require.LessOrEqual(t, ours.requests, stock.requests)
		})
	}
}

// generations are the generation that the owner's status says was observed, and the owner's.
func generations(owner model.Object) (observed, generation int64) {
	switch o := owner.(type) {
	case *appsv1.DaemonSet:
		observed = o.Status.ObservedGeneration
	case *appsv1.ReplicaSet:
		observed = o.Status.ObservedGeneration
	case *corev1.ReplicationController:
		observed = o.Status.ObservedGeneration
	}
	return observed, owner.GetGeneration()
}
