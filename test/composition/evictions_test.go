// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// Where the server takes long to read nodes, and only these, the pods of a node that is tainted are evicted later than on stock by what one proof takes: another one before each write
// would show nothing newer once it is there.
func TestAnEvictionWhileNodesAreReadSlowly(t *testing.T) {
	for _, delay := range []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second, 9 * time.Second} {
		t.Run(delay.String(), func(t *testing.T) {
			took := map[arms.Arm]time.Duration{}
			for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
				synctest.Test(t, func(t *testing.T) {
					server, f, tr, _ := start(t, arm, schedule.Schedule{Nodes: 3, Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "replicas", Replicas: 6}}})
					time.Sleep(time.Minute)
					f.Do(schedule.Step{Action: schedule.SlowReads, Target: "nodes", Delay: delay, For: 10 * time.Minute}, tr.After)
					time.Sleep(time.Minute)
					tr.Do(schedule.Step{Action: schedule.Taint, N: 0, For: 5 * time.Minute})
					tainted := time.Now()
					for left := 1; left > 0 && time.Since(tainted) < 4*time.Minute; {
						time.Sleep(50 * time.Millisecond)
						server.Look(func(truth model.Truth) {
							left = 0
							for _, o := range truth.List(model.Pods) {
								if pod := o.(*corev1.Pod); pod.Spec.NodeName == traffic.NodeName(0) && pod.DeletionTimestamp == nil {
									left++
								}
							}
						})
					}
					took[arm] = time.Since(tainted)
				})
			}
			t.Logf("stock %v, ours %v", took[arms.Stock], took[arms.Ours])
			require.LessOrEqual(t, took[arms.Ours], took[arms.Stock]+delay+delay/2+time.Second)
		})
	}
}
