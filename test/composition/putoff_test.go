// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// The server puts off what an owner writes, for a minute or for long. On stock client-go sends it again ten times, and then the controller's queue waits longer each time. Ours decides
// again as often at the most, though each time all is decided that the owner needs, and is no later after a minute; after half an hour no later than by a twentieth of that.
func TestWritesThatTheServerPutsOff(t *testing.T) {
	for _, kind := range append(kinds, "Deployment") {
		target, work := "pods", schedule.Step{At: time.Minute, Action: schedule.Scale, Target: "owner", N: 2}
		switch kind {
		case "DaemonSet":
			work = schedule.Step{At: time.Minute, Action: schedule.Roll, Target: "owner"}
		case "Deployment":
			target = "replicasets"
		}
		for _, trouble := range []schedule.Action{schedule.PutOff, schedule.TimeOut} {
			for _, after := range []int{1, 10} {
				s := schedule.Schedule{Nodes: 3, Monitor: true, Settle: 5 * time.Minute, Owners: []schedule.Owner{{Kind: kind, Name: "owner", Replicas: 4}},
					Steps: []schedule.Step{{At: 59 * time.Second, Action: trouble, Target: target, N: after, For: time.Minute}, work}}
				t.Run(fmt.Sprintf("%s, %s for a minute, after %d s", kind, trouble, after), func(t *testing.T) { both(t, s) })
				if trouble == schedule.TimeOut && after > 1 {
					continue
				}
				s.Monitor, s.Steps = false, []schedule.Step{{At: 59 * time.Second, Action: trouble, Target: target, N: after, For: 30 * time.Minute}, work}
				t.Run(fmt.Sprintf("%s, %s for long, after %d s", kind, trouble, after), func(t *testing.T) { seldomAndInTime(t, s, target, 30*time.Minute) })
			}
		}
	}
}

// seldomAndInTime says that ours writes no more often to a resource than stock does, and is done at the latest a twentieth of the trouble's time after it.
func seldomAndInTime(t *testing.T, s schedule.Schedule, resource string, lasts time.Duration) {
	t.Helper()
	stock, ours := run(t, arms.Stock, s, nil), run(t, arms.Ours, s, nil)
	owner := validate.Owners(s)[0]
	writes := func(r validate.Record) (n int) {
		for _, verb := range []string{"create", "update", "patch", "delete"} {
			n += r.Requests[owner][verb+" "+resource]
		}
		return n
	}
	t.Logf("stock: %d writes of %s, ours: %d", writes(stock), resource, writes(ours))
	require.Greater(t, writes(stock), 100, "nothing was put off")
	require.LessOrEqual(t, writes(ours), writes(stock)+5)
	spans := ours.Undone[owner]
	require.NotEmpty(t, spans)
	for _, span := range spans {
		require.False(t, span.Open, "it is not done")
		require.LessOrEqual(t, span.For, lasts+lasts/20+10*time.Second)
	}
}

// A Deployment that rolls and is scaled up has two ReplicaSets to scale. Where the server puts off what changes the first, stock's controller does not get to the second.
func TestADeploymentThatIsPutOffAsksForOneReplicaSet(t *testing.T) {
	for _, trouble := range []schedule.Action{schedule.PutOff, schedule.TimeOut, schedule.Throttle} {
		t.Run(string(trouble), func(t *testing.T) {
			s := deployment(false,
				schedule.Step{At: time.Minute, Action: schedule.Roll, Target: "deployments-0"},
				schedule.Step{At: time.Minute + 200*time.Millisecond, Action: trouble, Target: "replicasets", N: 2, For: 5 * time.Minute},
				schedule.Step{At: time.Minute + 1200*time.Millisecond, Action: schedule.Scale, Target: "deployments-0", N: 8})
			stock, ours := run(t, arms.Stock, s, nil), run(t, arms.Ours, s, nil)
			owner := validate.Owners(s)[0]
			const what = "update replicasets"
			t.Logf("stock: %d, ours: %d", stock.Requests[owner][what], ours.Requests[owner][what])
			require.Greater(t, stock.Requests[owner][what], 100, "nothing was put off")
			require.LessOrEqual(t, ours.Requests[owner][what], stock.Requests[owner][what])
			require.False(t, ours.Undone[owner][len(ours.Undone[owner])-1].Open, "it is not done")
		})
	}
}

// Of many owners of a controller that the server puts off, stock tries as many at a time as it has workers, which wait. So does ours, and all as soon as the server accepts a write again.
func TestManyOwnersThatTheServerPutsOff(t *testing.T) {
	const many, lasts = 40, 3 * time.Minute
	for _, kind := range []string{"ReplicaSet", "DaemonSet", "Deployment"} {
		for _, trouble := range []schedule.Action{schedule.PutOff, schedule.TimeOut} {
			t.Run(kind+", "+string(trouble), func(t *testing.T) {
				s := schedule.Schedule{Nodes: 3, Settle: 3 * time.Minute, Steps: []schedule.Step{{At: 59 * time.Second, Action: trouble, Target: "pods", N: 5, For: lasts}}}
				if kind == "Deployment" {
					s.Steps[0].Target = "replicasets"
				}
				for i := range many {
					name, action := fmt.Sprintf("owner-%d", i), schedule.Scale
					if kind == "DaemonSet" {
						action = schedule.Roll
					}
					s.Owners = append(s.Owners, schedule.Owner{Kind: kind, Name: name, Replicas: 3})
					s.Steps = append(s.Steps, schedule.Step{At: time.Minute, Action: action, Target: name, N: 2})
				}
				stock, ours := run(t, arms.Stock, s, nil), run(t, arms.Ours, s, nil)
				writes := func(r validate.Record) (n int, last time.Duration) {
					for _, owner := range validate.Owners(s) {
						n += r.Requests[owner]["delete pods"] + r.Requests[owner]["update replicasets"]
						span := r.Undone[owner][len(r.Undone[owner])-1]
						require.False(t, span.Open, "%s is not done", owner)
						last = max(last, span.For)
					}
					return n, last
				}
				was, stocks := writes(stock)
				is, last := writes(ours)
				t.Logf("stock: %d writes, the last owner is done after %s; ours: %d, after %s", was, stocks, is, last)
				require.LessOrEqual(t, is, was+many)
				require.LessOrEqual(t, last, stocks+5*time.Second)
			})
		}
	}
}

// A Job makes pods and takes finalizers off in one reconcile. On stock each of both keeps it busy, so that the other is tried half as often.
func TestAJobThatTheServerPutsOff(t *testing.T) {
	for _, trouble := range []schedule.Action{schedule.TimeOut, schedule.Throttle} {
		for _, lasts := range []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute} {
			t.Run(fmt.Sprintf("%s for %s", trouble, lasts), func(t *testing.T) {
				both(t, schedule.Schedule{Nodes: 4, Monitor: true, Settle: 10 * time.Minute, Owners: []schedule.Owner{{Kind: "Job", Name: "owner", Replicas: 4}},
					Steps: []schedule.Step{{At: 59 * time.Second, Action: trouble, Target: "pods", N: 2, For: lasts}}})
			})
		}
	}
}

// The status of a Job fails, and client-go sends it again until it is made; then a write of the same reconcile is put off. The queue knows of no failure, so that the Job comes back when the server asks for it.
func TestAWriteThatIsPutOffAfterAStatusThatWasSentAgain(t *testing.T) {
	both(t, schedule.Schedule{Nodes: 3, Monitor: true, Settle: 10 * time.Minute, Owners: []schedule.Owner{{Kind: "Job", Name: "owner", Replicas: 3}}, Steps: []schedule.Step{
		{At: 78 * time.Second, Action: schedule.TimeOut, Target: "jobs", N: 21, For: 24 * time.Minute},
		{At: 20 * time.Minute, Action: schedule.PutOff, Target: "pods", N: 6, For: 6 * time.Minute}}})
}

// A DaemonSet's controller waits twice as long each time that it decides to delete a failed pod. Where the server puts that off it decides no more often than on stock, and is no later.
func TestADeletionOfAFailedPodThatTheServerPutsOff(t *testing.T) {
	for _, trouble := range []schedule.Action{schedule.PutOff, schedule.TimeOut} {
		for _, lasts := range []time.Duration{time.Minute, 10 * time.Minute} {
			t.Run(fmt.Sprintf("%s for %s", trouble, lasts), func(t *testing.T) {
				both(t, schedule.Schedule{Nodes: 3, Monitor: true, Settle: 20 * time.Minute, Owners: []schedule.Owner{{Kind: "DaemonSet", Name: "owner"}}, Steps: []schedule.Step{
					{At: 59 * time.Second, Action: trouble, Target: "pods", N: 2, For: lasts}, {At: time.Minute, Action: schedule.FailPod, Target: "owner"}}})
			})
		}
	}
}

// What fails otherwise after the server has put it off for a while is tried again as soon as on stock: its queue has counted no failure before.
func TestADeletionFailsAfterItWasPutOff(t *testing.T) {
	for _, kind := range []string{"ReplicaSet", "DaemonSet", "ReplicationController"} {
		t.Run(kind, func(t *testing.T) {
			work := schedule.Step{At: time.Minute, Action: schedule.Scale, Target: "owner", N: 2}
			if kind == "DaemonSet" {
				work.Action = schedule.Roll
			}
			_, ours := both(t, schedule.Schedule{Nodes: 3, Monitor: true, Settle: 20 * time.Minute, Owners: []schedule.Owner{{Kind: kind, Name: "owner", Replicas: 4}}, Steps: []schedule.Step{
				{At: 59 * time.Second, Action: schedule.PutOff, Target: "pods", N: 1, For: 25 * time.Second}, work, {At: 84 * time.Second, Action: schedule.FailWrites, Target: "pods", N: 503, For: 2 * time.Second}}})
			spans := ours.Undone[validate.Owners(schedule.Schedule{Owners: []schedule.Owner{{Kind: kind, Name: "owner"}}})[0]]
			require.Less(t, spans[len(spans)-1].For, time.Minute)
		})
	}
}
