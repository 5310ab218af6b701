// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

func deployment(recreate bool, steps ...schedule.Step) schedule.Schedule {
	return schedule.Schedule{Nodes: 3, Monitor: true, Settle: 2 * time.Minute, Steps: steps,
		Owners: []schedule.Owner{{Kind: "Deployment", Name: "deployments-0", Replicas: 4, Recreate: recreate}, {Kind: "Deployment", Name: "deployments-1", Replicas: 3}}}
}

// Both kinds of rollouts take no more writes and time than upstream's while no cache is stale.
func TestDeploymentsRoll(t *testing.T) {
	for name, recreate := range map[string]bool{"rolling": false, "recreating": true} {
		t.Run(name, func(t *testing.T) {
			s := deployment(recreate,
				schedule.Step{At: time.Minute, Action: schedule.Roll, Target: "deployments-0"},
				schedule.Step{At: time.Minute, Action: schedule.Roll, Target: "deployments-1"},
				schedule.Step{At: 2 * time.Minute, Action: schedule.Scale, Target: "deployments-0", N: 2},
				schedule.Step{At: 3 * time.Minute, Action: schedule.Roll, Target: "deployments-0"})
			stock, _ := both(t, s)
			owner := validate.Owners(s)[0]
			require.Greater(t, stock.Requests[owner]["update replicasets"], 2)
			require.False(t, stock.Undone[owner][len(stock.Undone[owner])-1].Open)
			require.Empty(t, stock.Unjustified)
		})
	}
}

// A Deployment that recreates, whose pods are made and whose template changes while pod events are held, starts the new pods
// beside the old ones on stock.
func TestDeploymentThatRecreatesUnseenPods(t *testing.T) {
	s := deployment(true,
		schedule.Step{At: 50 * time.Second, Action: schedule.Hold, Target: "pods", For: 40 * time.Second},
		schedule.Step{At: time.Minute, Action: schedule.Scale, Target: "deployments-0", N: 4},
		schedule.Step{At: 75 * time.Second, Action: schedule.Roll, Target: "deployments-0"})
	s.Owners[0].Replicas = 0
	stock, ours := both(t, s)
	require.NotEmpty(t, stock.Unjustified)
	require.Equal(t, "revisions", stock.Unjustified[0].Rule)
	require.Empty(t, ours.Unjustified)
}

// Nor beside pods that were made a moment ago: a proof that another Deployment had just before says nothing of them.
func TestDeploymentThatRecreatesPodsOfAMomentAgo(t *testing.T) {
	for arm, beside := range map[arms.Arm]bool{arms.Stock: true, arms.Ours: false} {
		synctest.Test(t, func(t *testing.T) {
			server, f, tr, _ := start(t, arm, deployment(true))
			time.Sleep(50 * time.Second)
			tr.Do(schedule.Step{Action: schedule.Scale, Target: "deployments-0", N: 0})
			time.Sleep(10 * time.Second)
			f.Do(schedule.Step{Action: schedule.Hold, Target: "pods", For: 40 * time.Second}, tr.After)
			time.Sleep(time.Second)
			tr.Do(schedule.Step{Action: schedule.Scale, Target: "deployments-1", N: 2})
			time.Sleep(300 * time.Millisecond)
			tr.Do(schedule.Step{Action: schedule.Scale, Target: "deployments-0", N: 4})
			time.Sleep(700 * time.Millisecond)
			tr.Do(schedule.Step{Action: schedule.Roll, Target: "deployments-0"})
			time.Sleep(30 * time.Second)
			server.Look(func(truth model.Truth) {
				isNew := podsOf(truth, rolled("deployments-0"))
				require.Equal(t, 4, podsOf(truth, of("deployments-0"))-isNew, arm)
				require.Equal(t, beside, isNew > 0, arm)
			})
		})
	}
}

// A Deployment whose scale-down waits for a proof has pods of a new template meanwhile, as many as it may have besides. All of them come as soon as there is a
// proof, also if the answers to these writes are that.
func TestADeploymentRollsWhileItsScaleDownWaits(t *testing.T) {
	const wanted, surge, length = 9, 3, 3 * time.Minute
	rolls(t, wanted, func(t *testing.T, arm arms.Arm, server *model.Server, do func(schedule.Step)) {
		model.Change(server, model.Deployments, traffic.Namespace, "owner", func(d *appsv1.Deployment) {
			d.Spec.Strategy.RollingUpdate.MaxSurge = new(intstr.FromInt32(surge))
		})
		do(schedule.Step{Action: schedule.Unprovable, For: length})
		do(schedule.Step{Action: schedule.Scale, Target: "owner", N: wanted})
		time.Sleep(2 * time.Second)
		do(schedule.Step{Action: schedule.Roll, Target: "owner"})
		for range 10 {
			time.Sleep(100 * time.Millisecond)
			require.LessOrEqual(t, lookAt(server, stays), wanted+surge)
		}
		require.GreaterOrEqual(t, lookAt(server, rolled("owner")), wanted+surge-(wanted+1), "%s: new pods", arm)
	})
}

// A Deployment whose scale-down waits for a proof, and leaves no room for pods of a new template, has its status written no more often than stock's: when it
// changes, and not whenever it is looked at what waits.
func TestADeploymentsStatusIsLeftAloneWhileItsScaleDownWaits(t *testing.T) {
	const wanted, length = 4, 3 * time.Minute
	writes := rolls(t, wanted, func(t *testing.T, arm arms.Arm, server *model.Server, do func(schedule.Step)) {
		do(schedule.Step{Action: schedule.Unprovable, For: length})
		do(schedule.Step{Action: schedule.Scale, Target: "owner", N: wanted})
		time.Sleep(length / 2)
		do(schedule.Step{Action: schedule.Roll, Target: "owner"})
		time.Sleep(length/2 - time.Second)
		if arm == arms.Ours {
			require.Equal(t, 10, lookAt(server, stays), "no pod is deleted without a proof")
		}
	})
	require.LessOrEqual(t, writes[arms.Ours], writes[arms.Stock]+5)
}

func stays(p *corev1.Pod) bool { return p.DeletionTimestamp == nil }

func lookAt(server *model.Server, in func(*corev1.Pod) bool) (pods int) {
	server.Look(func(truth model.Truth) { pods = podsOf(truth, in) })
	return pods
}

// rolls has steps do something to a Deployment of ten pods that are there, and requires that it has so many pods of a new template soon after its end. It
// returns how often the status was written.
func rolls(t *testing.T, wanted int, steps func(t *testing.T, arm arms.Arm, server *model.Server, do func(schedule.Step))) map[arms.Arm]int {
	t.Helper()
	writes := map[arms.Arm]int{}
	for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
		synctest.Test(t, func(t *testing.T) {
			server, f, tr, manager := start(t, arm, schedule.Schedule{Nodes: 3, Owners: []schedule.Owner{{Kind: "Deployment", Name: "owner", Replicas: 10}}})
			time.Sleep(time.Minute)
			server.Observe = func(_ model.Truth, r *model.Request, done bool) {
				if done && r.Resource == model.Deployments && r.Subresource == "status" {
					writes[arm]++
				}
			}
			steps(t, arm, server, func(step schedule.Step) {
				if !tr.Do(step) {
					require.True(t, f.Do(step, tr.After))
				}
			})
			time.Sleep(time.Minute)
			require.Equal(t, wanted, lookAt(server, rolled("owner")), arm)
			require.Equal(t, wanted, lookAt(server, of("owner")), arm)
			require.Empty(t, manager.Waits())
		})
	}
	t.Logf("status writes: %v", writes)
	return writes
}
