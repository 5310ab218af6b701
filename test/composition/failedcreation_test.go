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

// That a creation has failed is in the status until a pod is made. While the server puts the next one off nothing changes there, so nothing is written, on either arm.
func TestACreationThatFailedIsPutOff(t *testing.T) {
	for kind, resource := range map[string]string{"ReplicaSet": "replicasets", "ReplicationController": "replicationcontrollers"} {
		t.Run(kind, func(t *testing.T) {
			s := schedule.Schedule{Nodes: 3, Monitor: true, Settle: 20 * time.Minute, Owners: []schedule.Owner{{Kind: kind, Name: "owner", Replicas: 4}}, Steps: []schedule.Step{
				{At: 59 * time.Second, Action: schedule.Refuse, Target: "owner", For: 2 * time.Minute}, {At: time.Minute, Action: schedule.DeletePod, Target: "owner"},
				{At: 3 * time.Minute, Action: schedule.TimeOut, Target: "pods", N: 2, For: 10 * time.Minute}, {At: 3 * time.Minute, Action: schedule.PutOff, Target: resource, N: 2, For: 10 * time.Minute}}}
			stock, ours := run(t, arms.Stock, s, nil), run(t, arms.Ours, s, nil)
			owner, status := validate.Owners(s)[0], "update "+resource+"/status"
			t.Logf("stock: %d, ours: %d", stock.Requests[owner][status], ours.Requests[owner][status])
			require.Greater(t, ours.Requests[owner]["create pods"], 10, "nothing was put off")
			require.LessOrEqual(t, ours.Requests[owner][status], stock.Requests[owner][status]+2)
		})
	}
}
