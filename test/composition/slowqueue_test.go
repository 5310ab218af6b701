// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// slowStatus is a history in which status writes take seconds, so that each turn in the queue does, and what a deletion depends on
// changes all the time. The first owner has pods too many from the beginning of it, the others have status writes to make.
func slowStatus(kind, depends string, excess, others schedule.Action) schedule.Schedule {
	const length = 100 * time.Second
	s := schedule.Schedule{Nodes: 5, Settle: time.Minute, Steps: []schedule.Step{
		{At: time.Minute, Action: schedule.SlowWrites, Target: strings.ToLower(kind) + "s", Delay: 9 * time.Second, For: length},
		{At: time.Minute, Action: schedule.SlowReads, Target: depends, Delay: 100 * time.Millisecond, For: length},
		{At: time.Minute, Action: schedule.Busy, Target: depends, N: 10, For: length},
	}}
	for i := range 8 {
		name, action := fmt.Sprint("owner-", i), others
		if i == 0 {
			action = excess
		}
		s.Owners = append(s.Owners, schedule.Owner{Kind: kind, Name: name, Replicas: 4})
		s.Steps = append(s.Steps, schedule.Step{At: time.Minute, Action: action, Target: name, N: 1, For: length})
	}
	return s
}

// A deletion that lacks no more than a newer reading of the caches does not queue for it: in a queue whose turns take seconds it
// comes as soon as upstream's, and a proof.
func TestDeletionKeepsItsTurn(t *testing.T) {
	for _, s := range []schedule.Schedule{
		slowStatus("DaemonSet", "nodes", schedule.Flip, schedule.Roll),
		slowStatus("ReplicaSet", "pods", schedule.Scale, schedule.Unready),
		slowStatus("ReplicationController", "pods", schedule.Scale, schedule.Unready),
		slowStatus("StatefulSet", "pods", schedule.Scale, schedule.Unready),
		slowStatus("Job", "pods", schedule.Scale, schedule.Unready),
	} {
		t.Run(s.Owners[0].Kind, func(t *testing.T) {
			stock, ours := both(t, s)
			owner := validate.Owners(s)[0]
			require.NotEmpty(t, stock.Excess[owner])
			require.NotEmpty(t, ours.Excess[owner])
			require.Less(t, ours.Excess[owner][0].For, stock.Excess[owner][0].For+2*time.Second)
		})
	}
}
