// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
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
	for _, monitor := range []bool{false, true} {
		for kind, resource := range map[string]string{"ReplicaSet": "replicasets", "DaemonSet": "daemonsets", "StatefulSet": "statefulsets", "ReplicationController": "replicationcontrollers"} {
			s := schedule.Schedule{
				Nodes: 3, Monitor: monitor, Settle: 3 * time.Minute,
				Owners: []schedule.Owner{{Kind: kind, Name: "owner", Replicas: 3}},
				Steps: []schedule.Step{
					{At: 50 * time.Second, Action: schedule.Lag, Target: resource, For: 18 * time.Second},
					{At: 65 * time.Second, Action: schedule.Expire, Target: resource}, // The bookmark of the first minute is told.
					{At: 70 * time.Second, Action: schedule.DeletePod, Target: "owner"},
				},
			}
			owner := validate.Owners(s)[0]
			took := func(arm arms.Arm) time.Duration {
				spans := run(t, arm, s, nil).Undone[owner]
				return spans[len(spans)-1].For
			}
			stock, ours := took(arms.Stock), took(arms.Ours)
			t.Logf("%s, monitor %t: stock %s, ours %s", kind, monitor, stock, ours)
			require.LessOrEqual(t, ours, stock+time.Second)
		}
	}
}
