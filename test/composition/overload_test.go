// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// The server puts off all that a controller writes, an owner's status, too. On stock the client sends one after the other again, so that each has its turn a half or a third of the time. Ours sends
// no more in all. After two minutes it is done as soon; after 25 min stock's queues wait for minutes, and ours tries again after an eighth of that time.
func TestTheServerPutsOffAllWrites(t *testing.T) {
	written := map[string][]string{
		"ReplicaSet": {"replicasets"}, "ReplicationController": {"replicationcontrollers"}, "Job": {"jobs"}, "StatefulSet": {"statefulsets", "controllerrevisions"},
		"DaemonSet": {"daemonsets", "controllerrevisions"}, "Deployment": {"deployments", "replicasets"},
	}
	for _, kind := range append(kinds, "Deployment") {
		for _, c := range []struct {
			name    string
			work    schedule.Step
			trouble schedule.Action
		}{
			{"scaled down", schedule.Step{At: time.Minute, Action: schedule.Scale, Target: "owner", N: 2}, schedule.PutOff},
			{"scaled down", schedule.Step{At: time.Minute, Action: schedule.Scale, Target: "owner", N: 2}, schedule.TimeOut},
			{"scaled up", schedule.Step{At: time.Minute, Action: schedule.Scale, Target: "owner", N: 7}, schedule.TimeOut},
			{"loses a pod", schedule.Step{At: 58900 * time.Millisecond, Action: schedule.DeletePod, Target: "owner"}, schedule.TimeOut}, // It is gone before the trouble begins.
		} {
			if (kind == "DaemonSet") != (c.work.Action == schedule.DeletePod) {
				continue // Nobody scales a DaemonSet.
			}
			for _, lasts := range []time.Duration{2 * time.Minute, 25 * time.Minute} {
				t.Run(fmt.Sprintf("%s %s, %s for %s", kind, c.name, c.trouble, lasts), func(t *testing.T) {
					s := schedule.Schedule{Nodes: 3, Settle: 15 * time.Minute, Owners: []schedule.Owner{{Kind: kind, Name: "owner", Replicas: 4}}, Steps: []schedule.Step{c.work}}
					for _, target := range append(written[kind], "pods") {
						s.Steps = append(s.Steps, schedule.Step{At: 59 * time.Second, Action: c.trouble, Target: target, N: 1, For: lasts})
					}
					was, stocks, _ := writesAndEnd(t, s, arms.Stock)
					is, ours, done := writesAndEnd(t, s, arms.Ours)
					t.Logf("stock: %d writes, done after %s; ours: %d writes, after %s", was, stocks, is, ours)
					require.Greater(t, was, 50, "nothing was put off")
					require.LessOrEqual(t, is, was+was/12+5)
					require.LessOrEqual(t, ours, stocks+5*time.Second) // Of a Job nothing is undone meanwhile: only its writes are compared.
					require.True(t, done)
				})
			}
		}
	}
}

// writesAndEnd are how many writes a schedule's one owner has, for how long it lacked last what it is to have, and whether it has that in the end.
func writesAndEnd(t *testing.T, s schedule.Schedule, arm arms.Arm) (writes int, lacked time.Duration, done bool) {
	t.Helper()
	record := run(t, arm, s, nil)
	owner := validate.Owners(s)[0]
	for what, n := range record.Requests[owner] {
		if !strings.HasPrefix(what, "get ") {
			writes += n
		}
	}
	spans := record.Undone[owner]
	require.NotEmpty(t, spans)
	last := spans[len(spans)-1]
	return writes, last.For, !last.Open
}
