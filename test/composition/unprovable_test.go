// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/faults"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

const tenant = "tenant"

func quotaOf(truth model.Truth) corev1.ResourceQuotaStatus {
	return truth.Get(model.Quotas, tenant, tenant).(*corev1.ResourceQuota).Status
}

func budgetOf(truth model.Truth) policyv1.PodDisruptionBudgetStatus {
	return truth.Get(model.Budgets, tenant, tenant).(*policyv1.PodDisruptionBudget).Status
}

func podsOf(truth model.Truth, in func(*corev1.Pod) bool) (n int) {
	for _, o := range truth.List(model.Pods) {
		if in(o.(*corev1.Pod)) {
			n++
		}
	}
	return n
}

func hardIsNine(truth model.Truth) bool {
	hard := quotaOf(truth).Hard[corev1.ResourcePods]
	return hard.Value() == 9
}

func oneEnded(truth model.Truth) bool { return podsOf(truth, ended) <= 1 }

func ended(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded }

func onGoneNode(p *corev1.Pod) bool { return p.Spec.NodeName == traffic.NodeName(0) }

// startOurs runs our controllers until the test ends. The faults are there before they start.
func startOurs(t *testing.T, s schedule.Schedule, flags arms.Flags, before ...schedule.Step) (*model.Server, *faults.Faults, *traffic.Traffic, *arms.Manager) {
	server := model.New()
	f := faults.New(server)
	server.Fate = f.Fate
	tr := traffic.Start(server, s)
	server.Changed = func(_ model.Truth, _ *model.Resource, old, now model.Object) { tr.Changed(old, now) }
	for _, step := range before {
		f.Do(step, tr.After)
	}
	manager, err := arms.Start(context.Background(), arms.Ours, server, flags)
	require.NoError(t, err)
	t.Cleanup(func() {
		tr.End()
		manager.Stop()
	})
	return server, f, tr, manager
}

// Where nothing can be proven for an hour, what waits is shown, the rest goes on, and each wait ends: that of a value after a minute,
// that of a deletion once there are proofs again.
//
//conformance:kep-5647 Risks and Mitigations: nothing waits without limit
func TestNothingCanBeProvenForAnHour(t *testing.T) {
	const hour, begins = time.Hour, 10 * time.Minute
	for _, test := range []struct {
		name, controller string
		steps            []schedule.Step
		// goesOn is so soon after the steps.
		goesOn func(model.Truth) bool
		soon   time.Duration
		// done is not so by then, and is within late, or, if that is 0, soon after the hour.
		done func(model.Truth) bool
		late time.Duration
	}{
		{
			controller: "resourcequota",
			steps:      []schedule.Step{{Action: schedule.Empty, Target: tenant, N: 4}, {Action: schedule.SetHard, Target: tenant, N: 9}},
			goesOn:     hardIsNine, soon: 2 * time.Second,
			done: func(truth model.Truth) bool {
				used := quotaOf(truth).Used[corev1.ResourcePods]
				return used.Value() == 0
			},
			late: 65 * time.Second,
		},
		{
			controller: "disruption",
			steps:      []schedule.Step{{Action: schedule.SetMin, Target: tenant, N: 1}},
			goesOn:     func(truth model.Truth) bool { return budgetOf(truth).DesiredHealthy == 1 },
			soon:       2 * time.Second,
			done:       func(truth model.Truth) bool { return budgetOf(truth).DisruptionsAllowed == 3 },
			late:       65 * time.Second,
		},
		{
			controller: "podgc",
			steps:      []schedule.Step{{Action: schedule.EndPods, Target: tenant, N: 4}, {Action: schedule.SetHard, Target: tenant, N: 9}},
			goesOn:     hardIsNine, soon: 2 * time.Second,
			done: oneEnded,
		},
		{
			name: "podgc, which deletes other pods meanwhile", controller: "podgc",
			steps:  []schedule.Step{{Action: schedule.EndPods, Target: tenant, N: 4}, {Action: schedule.NodeGone, N: 0, For: 3 * hour, At: time.Minute}},
			goesOn: func(truth model.Truth) bool { return podsOf(truth, ended) > 1 }, soon: time.Minute,
			done: func(truth model.Truth) bool { return oneEnded(truth) && podsOf(truth, onGoneNode) == 0 },
			late: 150 * time.Second, // Each of those deletions is a fence.
		},
	} {
		t.Run(cmp.Or(test.name, test.controller), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := schedule.Schedule{
					Nodes: 3, Ended: 1, Tenants: []schedule.Tenant{{Name: tenant, Pods: 4, Hard: 5}}, Budgets: []schedule.Budget{{Over: tenant, MinAvailable: 4}},
					Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "replicas", Replicas: 4}},
				}
				server, f, tr, manager := startOurs(t, s, arms.Flags{Guards: true, Ended: s.Ended})
				is := func(what func(model.Truth) bool) (yes bool) {
					server.Look(func(truth model.Truth) { yes = what(truth) })
					return yes
				}
				waits := func() (of []stalenessz.Wait) {
					for _, w := range manager.Waits() {
						if w.Controller == test.controller {
							of = append(of, w)
						}
					}
					return of
				}
				time.Sleep(begins)
				require.Empty(t, waits())
				f.Do(schedule.Step{Action: schedule.Unprovable, For: hour}, tr.After)
				over := time.Now().Add(hour)
				time.Sleep(time.Minute)
				began := time.Now()
				for _, step := range test.steps {
					tr.After(step.At, func() { tr.Do(step) })
				}
				time.Sleep(test.soon)
				require.True(t, is(test.goesOn), "what needs no proof goes on")
				time.Sleep(21*time.Second - time.Since(began)%(20*time.Second)) // A pass of podgc.
				require.False(t, is(test.done), "done at %s", time.Since(began))
				require.NotEmpty(t, waits(), "the page shows what waits")
				require.NotEmpty(t, waits()[0].Why)
				if test.late > 0 {
					time.Sleep(test.late - time.Since(began))
					require.True(t, is(test.done), "no value waits for ever")
				}
				time.Sleep(time.Until(over) - time.Second)
				require.Equal(t, test.late > 0, is(test.done))
				time.Sleep(time.Minute)
				require.True(t, is(test.done))
				require.Empty(t, waits())
			})
		})
	}
}

// Where nothing can be proven from the start on, owners are reconciled all the same after a minute, and the page shows until then why they are not.
func TestNothingCanBeProvenFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := schedule.Schedule{Nodes: 3}
		for _, kind := range kinds {
			s.Owners = append(s.Owners, schedule.Owner{Kind: kind, Name: strings.ToLower(kind), Replicas: 3})
		}
		server, _, _, manager := startOurs(t, s, arms.Flags{}, schedule.Step{Action: schedule.Unprovable, For: time.Hour})
		reconciled := func() map[string]bool {
			owners := map[string]bool{}
			server.Look(func(truth model.Truth) {
				for _, o := range truth.List(model.Pods) {
					owners[metav1.GetControllerOf(o).Kind] = true
				}
			})
			return owners
		}
		time.Sleep(50 * time.Second)
		require.Empty(t, reconciled())
		for _, w := range manager.Waits() {
			require.NotEmpty(t, w.Why)
		}
		require.Len(t, manager.Waits(), len(kinds))
		time.Sleep(30 * time.Second)
		require.Len(t, reconciled(), len(kinds))
		require.Empty(t, manager.Waits())
	})
}

// Where nothing can be proven, an owner whose answers were lost waits a minute to learn what became of its writes, not for ever.
func TestTheOutcomeOfAWriteCannotBeProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := schedule.Schedule{Nodes: 3, Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "replicas", Replicas: 4}}}
		server, f, tr, manager := startOurs(t, s, arms.Flags{})
		pods := func() (n int) {
			server.Look(func(truth model.Truth) { n = len(truth.List(model.Pods)) })
			return n
		}
		time.Sleep(10 * time.Minute)
		require.Equal(t, 4, pods())
		f.Do(schedule.Step{Action: schedule.Unprovable, For: time.Hour}, tr.After)
		f.Do(schedule.Step{Action: schedule.LostAnswer, Target: "pods", For: time.Second}, tr.After)
		tr.Do(schedule.Step{Action: schedule.Scale, Target: "replicas", N: 20})
		time.Sleep(50 * time.Second)
		require.Less(t, pods(), 20)
		require.Len(t, manager.Waits(), 1)
		require.Contains(t, manager.Waits()[0].For, "the outcome of a write")
		time.Sleep(30 * time.Second)
		require.Empty(t, manager.Waits())
		require.Equal(t, 20, pods())
	})
}
