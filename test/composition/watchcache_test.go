// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/faults"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// informersAsk counts what the informer of pods asks for while a fault lasts and 2 min more: lists, or watches that begin
// with all objects, and watches that are resumed. Pods are deleted all the time, which takes proofs. Of then each step comes At so long after the fault.
func informersAsk(t *testing.T, arm arms.Arm, pods int, fault schedule.Step, then ...schedule.Step) (lists, resumed int) {
	synctest.Test(t, func(t *testing.T) {
		s := schedule.Schedule{Nodes: 5, Monitor: true, Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "owner", Replicas: pods}, {Kind: "ReplicaSet", Name: "busy", Replicas: 3}}}
		ctx := context.Background()
		server := model.New()
		f := faults.New(server)
		counts := false
		server.Fate, server.Observe = f.Fate, func(_ model.Truth, r *model.Request, done bool) {
			if !done || !counts || model.Probe(r) || r.Resource != model.Pods || r.Verb != "list" && r.Verb != "watch" || r.Namespace != "" {
				return
			}
			if r.Lists() {
				lists++
			} else {
				resumed++
			}
		}
		tr := traffic.Start(server, s)
		server.Changed = func(_ model.Truth, _ *model.Resource, old, now model.Object) { tr.Changed(old, now) }
		manager, err := arms.Start(ctx, arm, server, flagsFor(s, nil))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		tr.Do(schedule.Step{Action: schedule.Flap, Target: "busy", Delay: 3 * time.Second, For: fault.For + time.Minute})
		time.Sleep(20 * time.Second)
		counts = true
		f.Do(fault, tr.After)
		for _, step := range then {
			tr.After(step.At, func() { f.Do(step, tr.After) })
		}
		for i := range int(fault.For / (4 * time.Second)) {
			tr.After(time.Duration(i)*4*time.Second+time.Second, func() { tr.Do(schedule.Step{Action: schedule.Scale, Target: "owner", N: pods - 1 - i}) })
		}
		time.Sleep(fault.For + 2*time.Minute)
		tr.End()
		manager.End()
	})
	return lists, resumed
}

// A server whose watches bring nothing to anybody for a while, as when the member of etcd behind its watch cache is defragmented, is not made to
// list for that: on stock the cache is fresh when the server is. Where the informer's watch alone is silent, its informer relists.
func TestOnlyAWatchThatIsSilentAloneIsRelisted(t *testing.T) {
	const length = 150 * time.Second
	for _, pods := range []int{150, 450, 700} {
		for _, test := range []struct {
			fault schedule.Step
			lists bool
		}{
			{schedule.Step{Action: schedule.Late, Target: "pods", Delay: 2 * length, For: length}, false},
			{schedule.Step{Action: schedule.Hold, Target: "pods", For: length}, true},
		} {
			t.Run(fmt.Sprintf("%d pods, %s", pods, test.fault.Action), func(t *testing.T) {
				lists, _ := informersAsk(t, arms.Stock, pods, test.fault)
				require.Zero(t, lists, "stock")
				lists, resumed := informersAsk(t, arms.Ours, pods, test.fault)
				t.Logf("%d lists, %d watches that go on", lists, resumed)
				require.Equal(t, test.lists, lists > 0, "%d lists", lists)
			})
		}
	}
}

// A watch that expires while the apiserver that it comes to anew stands still begins there once: of what that has nothing has expired.
func TestAWatchBeginsOnceWhereTheServerStandsStill(t *testing.T) {
	const length = time.Minute
	for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
		lists, resumed := informersAsk(t, arm, 50, schedule.Step{Action: schedule.Lag, Target: "pods", For: length}, schedule.Step{At: length / 6, Action: schedule.Expire, Target: "pods"})
		t.Logf("%v: %d lists, %d watches that go on", arm, lists, resumed)
		require.Positive(t, lists)
		require.Less(t, lists+resumed, 20)
	}
}
