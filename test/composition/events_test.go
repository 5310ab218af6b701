// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// Writes fail for a minute, in which pods turn unready and ready again. Each try that such an event causes doubles the delay of the owner's queue, so on stock what failed is made up for a
// quarter of an hour later. Ours is tried again at the latest when writes have failed for as long again, and some seconds. The queue of Deployments gives them up, and begins anew with
// the next event.
func TestEventsWhileWritesFail(t *testing.T) {
	const begins, fault = time.Minute, time.Minute
	scale, roll, remove := schedule.Step{Action: schedule.Scale, N: 4}, schedule.Step{Action: schedule.Roll}, schedule.Step{Action: schedule.DeletePod, N: 2}
	for name, tc := range map[string]struct {
		kind   string
		change schedule.Step
		// creates says that it is creations of pods that fail, and not statuses.
		creates bool
		// soon says that stock is done soon.
		soon bool
	}{
		"the status of a DaemonSet":             {kind: "DaemonSet", change: roll},
		"the status of a StatefulSet":           {kind: "StatefulSet", change: roll},
		"the status of a ReplicaSet":            {kind: "ReplicaSet", change: scale},
		"the status of a ReplicationController": {kind: "ReplicationController", change: scale},
		"the status of a Deployment":            {kind: "Deployment", change: scale, soon: true},
		"creations of a DaemonSet":              {kind: "DaemonSet", change: remove, creates: true},
		"creations of a StatefulSet":            {kind: "StatefulSet", change: scale, creates: true, soon: true},
		"creations of a ReplicaSet":             {kind: "ReplicaSet", change: scale, creates: true},
		"creations of a ReplicationController":  {kind: "ReplicationController", change: scale, creates: true},
	} {
		t.Run(name, func(t *testing.T) {
			resource := strings.ToLower(tc.kind) + "s"
			tries, step := "update "+resource+"/status", schedule.Step{At: begins, Action: schedule.FailWrites, Target: resource, N: 503, For: fault}
			if tc.creates {
				tries, step = "create pods", schedule.Step{At: begins, Action: schedule.Webhook, Target: "owner", For: fault}
			}
			tc.change.At, tc.change.Target = begins+time.Second, "owner"
			s := schedule.Schedule{
				Nodes: 3, Settle: 20 * time.Minute,
				Owners: []schedule.Owner{{Kind: tc.kind, Name: "owner", Replicas: 3}},
				Steps:  []schedule.Step{step, tc.change, {At: begins + time.Second, Action: schedule.Flap, Target: "owner", Delay: 3 * time.Second, For: fault / 2}},
			}
			stock, ours := both(t, s)
			owner := validate.Owners(s)[0]
			done := func(r validate.Record) (at time.Duration) {
				spans := r.Untold[owner]
				if tc.creates {
					spans = r.Undone[owner]
				}
				for _, span := range spans {
					at = max(at, span.From+span.For)
				}
				return at
			}
			t.Logf("stock: done after %s, %d tries; ours: %s, %d", done(stock), stock.Requests[owner][tries], done(ours), ours.Requests[owner][tries])
			require.Equal(t, tc.soon, done(stock) < begins+4*fault, "events did not double the delay")
			require.LessOrEqual(t, done(ours), begins+2*fault+15*time.Second)
			require.LessOrEqual(t, ours.Requests[owner][tries], stock.Requests[owner][tries]+5)
		})
	}
}

// A DaemonSet's status is refused for four minutes, in which proofs of revisions are slow. Neither the wait for a proof that another reconcile has had, nor a new wait, has the status
// tried again and again. Ours is right when writes succeed again, stock's is not by the end, so the comparison of the history allows for more tries than these.
func TestAStatusIsRefusedBesideASlowProof(t *testing.T) {
	s, err := schedule.Load(filepath.Join(regressions, "statuses-fail-beside-a-slow-proof.json"))
	require.NoError(t, err)
	stock, ours := both(t, s)
	owner, tries := validate.Owners(s)[0], "update daemonsets/status"
	require.LessOrEqual(t, ours.Requests[owner][tries], stock.Requests[owner][tries]*5/4+10)
	last := func(r validate.Record) validate.Span { return r.Untold[owner][len(r.Untold[owner])-1] }
	require.True(t, last(stock).Open)
	require.False(t, last(ours).Open)
}
