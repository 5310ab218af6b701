// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// An informer relists at an apiserver that lags, by no more than the last bookmark: its list lacks nothing, and nothing comes that brings the cache back to where it was. Pods are made
// again as soon as on stock all the same.
func TestACacheGoesBackThatLacksNothing(t *testing.T) {
	for kind, resource := range map[string]string{"ReplicaSet": "replicasets", "DaemonSet": "daemonsets", "StatefulSet": "statefulsets", "ReplicationController": "replicationcontrollers"} {
		t.Run(kind, func(t *testing.T) {
			s := schedule.Schedule{
				Nodes: 3, Monitor: true, Settle: 3 * time.Minute,
				Owners: []schedule.Owner{{Kind: kind, Name: "owner", Replicas: 3}},
				Steps: []schedule.Step{
					{At: 30 * time.Second, Action: schedule.Lag, Target: resource, For: 38 * time.Second},
					{At: 65 * time.Second, Action: schedule.Expire, Target: resource}, // The bookmark of the first minute is told.
					{At: 70 * time.Second, Action: schedule.DeletePod, Target: "owner"},
				},
			}
			owner := validate.Owners(s)[0]
			var wentBack atomic.Bool
			took := func(arm arms.Arm) time.Duration {
				spans := run(t, arm, s, func(line string) {
					if strings.Contains(line, "A cache went back") {
						wentBack.Store(true)
					}
				}).Undone[owner]
				return spans[len(spans)-1].For
			}
			stock, ours := took(arms.Stock), took(arms.Ours)
			t.Logf("stock %s, ours %s", stock, ours)
			require.True(t, wentBack.Load())
			require.LessOrEqual(t, ours, stock+time.Second)
		})
	}
}
