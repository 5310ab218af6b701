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
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/faults"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

const tenant = "tenant"

// start runs an arm's controllers until the test ends. The faults are there before they start.
func start(t *testing.T, arm arms.Arm, s schedule.Schedule, before ...schedule.Step) (*model.Server, *faults.Faults, *traffic.Traffic, *arms.Manager) {
	server := model.New()
	f := faults.New(server)
	server.Fate = f.Fate
	tr := traffic.Start(server, s)
	server.Changed = func(_ model.Truth, _ *model.Resource, old, now model.Object) { tr.Changed(old, now) }
	for _, step := range before {
		f.Do(step, tr.After)
	}
	manager, err := arms.Start(context.Background(), arm, server, flagsFor(s, tr.Measured(func(model.Truth, schedule.Autoscaler) {})))
	require.NoError(t, err)
	t.Cleanup(func() {
		tr.End()
		manager.End()
	})
	return server, f, tr, manager
}

const (
	// unprovenFrom is when the hour begins in which nothing can be proven, stepsFrom when what is to wait happens.
	unprovenFrom, unproven = 10 * time.Minute, time.Hour
	stepsFrom              = unprovenFrom + time.Minute
	// look is when it is looked at what waits, unless a history says when: podgc has made a pass by then, and an autoscaler been looked at.
	look = 41 * time.Second
)

// hour is a history with an hour in which nothing can be proven.
type hour struct {
	name, controller string
	schedule         schedule.Schedule
	// unread is the resource of which nothing can be read live then either.
	unread string
	// before happen before the hour, steps in it: At counts from stepsFrom.
	before, steps []schedule.Step
	// goesOn is so soon after stepsFrom.
	goesOn func(model.Truth) bool
	soon   time.Duration
	// done is not so at look, and is within late, or, if that is 0, soon after the hour. Stock has done it at look, unless it waits, too.
	done       func(model.Truth) bool
	look, late time.Duration
	asStock    bool
}

// play plays the history on an arm, and returns how many objects of each resource, but events, there are at its end.
func (h hour) play(t *testing.T, arm arms.Arm) map[string]int {
	began := time.Now()
	s := h.schedule
	for _, step := range h.steps {
		step.At += stepsFrom
		s.Steps = append(s.Steps, step) // The load follows from them.
	}
	server, f, tr, manager := start(t, arm, s)
	for _, step := range append(h.before, s.Steps...) {
		tr.After(time.Until(began.Add(step.At)), func() { tr.Do(step) })
	}
	ours := arm == arms.Ours
	waiting := ours || h.asStock
	at := func(d time.Duration) { time.Sleep(time.Until(began.Add(d))) }
	is := func(what func(model.Truth) bool) (yes bool) {
		server.Look(func(truth model.Truth) { yes = what(truth) })
		return yes
	}
	waits := func() (of []stalenessz.Wait) {
		for _, w := range manager.Waits() {
			if w.Controller == h.controller {
				of = append(of, w)
			}
		}
		return of
	}
	at(unprovenFrom)
	require.Empty(t, waits())
	f.Do(schedule.Step{Action: schedule.Unprovable, Target: h.unread, For: unproven}, tr.After)
	at(stepsFrom + h.soon)
	require.True(t, is(h.goesOn), "%s: what needs no proof goes on", arm)
	at(stepsFrom + cmp.Or(h.look, look))
	require.Equal(t, !waiting, is(h.done), "%s: done", arm)
	if ours {
		require.NotEmpty(t, waits(), "the page shows what waits")
		require.NotEmpty(t, waits()[0].Why)
	}
	if h.late > 0 {
		at(stepsFrom + h.late)
		require.True(t, is(h.done), "%s: nothing that ends by a limit waits for longer", arm)
	}
	at(unprovenFrom + unproven - time.Second)
	require.Equal(t, h.late > 0 || !waiting, is(h.done), "%s: done by the end of the hour", arm)
	at(unprovenFrom + unproven + time.Minute)
	require.True(t, is(h.done), "%s: done after the hour", arm)
	require.Empty(t, waits())
	left := map[string]int{}
	server.Look(func(truth model.Truth) {
		for _, r := range model.All() {
			if r != model.Events {
				left[r.String()] = len(truth.List(r))
			}
		}
	})
	return left
}

// Where nothing can be proven for an hour, what waits is shown, the rest goes on, and each wait ends as docs/status.md says: that of a value, a
// finalizer, a run or fewer replicas at its limit, that of a deletion or a detachment once there are proofs again. Then all is as on stock.
//
//conformance:kep-5647 Risks and Mitigations: nothing waits without limit
func TestNothingCanBeProvenForAnHour(t *testing.T) {
	for _, h := range hours {
		t.Run(cmp.Or(h.name, h.controller), func(t *testing.T) {
			var stock map[string]int
			synctest.Test(t, func(t *testing.T) { stock = h.play(t, arms.Stock) })
			synctest.Test(t, func(t *testing.T) { require.Equal(t, stock, h.play(t, arms.Ours)) })
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
		server, _, _, manager := start(t, arms.Ours, s, schedule.Step{Action: schedule.Unprovable, For: time.Hour})
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
		server, f, tr, manager := start(t, arms.Ours, s)
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

// An owner that is made again under the name of one whose answers were lost does not wait for what became of the writes of that.
func TestAnOwnerDoesNotWaitForTheWritesOfItsPredecessor(t *testing.T) {
	for _, kind := range []string{"StatefulSet", "ReplicaSet", "DaemonSet", "Job", "ReplicationController"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := schedule.Owner{Kind: kind, Name: "owner", Replicas: 3}
				server, f, tr, manager := start(t, arms.Ours, schedule.Schedule{Nodes: 3, Owners: []schedule.Owner{o}})
				time.Sleep(time.Minute)
				f.Do(schedule.Step{Action: schedule.Unprovable, For: time.Hour}, tr.After)
				f.Do(schedule.Step{Action: schedule.TimeOut, Target: "pods", For: 5 * time.Second}, tr.After)
				tr.Do(schedule.Step{Action: schedule.Scale, Target: "owner", N: 5})
				tr.Do(schedule.Step{Action: schedule.DeletePod, Target: "owner"})
				time.Sleep(10 * time.Second)
				require.NotEmpty(t, manager.Waits())
				tr.Remove(o)
				time.Sleep(5 * time.Second)
				tr.Make(o)
				began := time.Now()
				for made := false; !made; {
					time.Sleep(100 * time.Millisecond)
					server.Look(func(truth model.Truth) {
						made = truth.Get(traffic.Kinds[kind], traffic.Namespace, "owner") != nil && podsOf(truth, runs("owner")) >= 2
					})
				}
				require.Less(t, time.Since(began), 10*time.Second)
			})
		})
	}
}

// A DaemonSet that surges makes the new pods beside the old ones as soon as stock, though it has a pod that has to wait to be deleted from another node; but no more
// than it may have too many while the old ones have to wait, too.
func TestADaemonSetSurgesWhileADeletionWaits(t *testing.T) {
	const surge, wanted = 2, 5
	s := schedule.Schedule{Nodes: wanted + 1, Owners: []schedule.Owner{{Kind: "DaemonSet", Name: "rolled", Surge: surge}}}
	for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
		t.Run(string(arm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, f, tr, _ := start(t, arm, s)
				pods := func() (all, made int) {
					server.Look(func(truth model.Truth) { all, made = podsOf(truth, of("rolled")), podsOf(truth, rolled("rolled")) })
					return all, made
				}
				time.Sleep(unprovenFrom)
				f.Do(schedule.Step{Action: schedule.Unprovable, For: unproven}, tr.After)
				tr.Do(schedule.Step{Action: schedule.Relabel, Target: "rolled"})
				time.Sleep(10 * time.Second)
				tr.Do(schedule.Step{Action: schedule.Roll, Target: "rolled"})
				time.Sleep(time.Second)
				_, made := pods()
				require.GreaterOrEqual(t, made, surge, "it surges at once")
				time.Sleep(unproven / 2)
				all, made := pods()
				if arm == arms.Ours {
					require.Equal(t, surge, made, "it surges no further")
					require.Equal(t, wanted+1+surge, all)
				}
				time.Sleep(unproven/2 + time.Minute)
				all, made = pods()
				require.Equal(t, []int{wanted, wanted}, []int{all, made})
			})
		})
	}
}

// A status that cannot be written is tried again with the queue's backoff, as on stock, though a deletion waits: not only when that is looked at again, and not
// after a backoff that has grown each time that it was.
func TestAStatusIsTriedAgainWhileADeletionWaits(t *testing.T) {
	for kind, tc := range map[string]struct {
		resource *model.Resource
		held     string
		unseen   schedule.Step
	}{
		"DaemonSet":   {model.DaemonSets, "nodes", schedule.Step{Action: schedule.Relabel, Target: "owner"}},
		"StatefulSet": {model.StatefulSets, "pods", schedule.Step{Action: schedule.Unready, Target: "owner", For: time.Second}},
	} {
		t.Run(kind, func(t *testing.T) {
			// The last lasts longer than the deletion waits.
			for _, fails := range []time.Duration{500 * time.Millisecond, 3 * time.Second, 245 * time.Second} {
				stock, ours := untilStatus(t, arms.Stock, kind, tc.resource, tc.held, tc.unseen, fails), untilStatus(t, arms.Ours, kind, tc.resource, tc.held, tc.unseen, fails)
				t.Logf("status writes fail for %v, the status is written after: stock %v, ours %v", fails, stock, ours)
				require.Less(t, ours, stock+2*time.Second)
			}
		})
	}
}

// untilStatus changes an owner that has a pod too many, which ours deletes only by a proven cache, while that is held, and status writes fail for a
// while. It returns how long it takes until the status has the change.
func untilStatus(t *testing.T, arm arms.Arm, kind string, resource *model.Resource, held string, unseen schedule.Step, fails time.Duration) (took time.Duration) {
	t.Helper()
	const length = 4 * time.Minute
	s := schedule.Schedule{Nodes: 4, Owners: []schedule.Owner{{Kind: kind, Name: "owner", Replicas: 4}}}
	synctest.Test(t, func(t *testing.T) {
		server, f, tr, _ := start(t, arm, s)
		time.Sleep(unprovenFrom)
		f.Do(schedule.Step{Action: schedule.Hold, Target: held, For: length}, tr.After)
		tr.Do(unseen)
		time.Sleep(5 * time.Second)
		f.Do(schedule.Step{Action: schedule.FailWrites, Target: resource.GroupVersionResource.Resource, For: fails}, tr.After)
		tr.Do(schedule.Step{Action: schedule.Flip, Target: "owner", For: time.Hour})
		began := time.Now()
		told := func() (told bool) {
			server.Look(func(truth model.Truth) {
				switch o := truth.Get(resource, traffic.Namespace, "owner").(type) {
				case *appsv1.DaemonSet:
					told = o.Status.ObservedGeneration == o.Generation
				case *appsv1.StatefulSet:
					told = o.Status.ObservedGeneration == o.Generation
				}
			})
			return told
		}
		for !told() && took < time.Hour {
			time.Sleep(100 * time.Millisecond)
			took = time.Since(began)
		}
		time.Sleep(length)
	})
	return took
}

// A Deployment that recreates makes its first ReplicaSet, and is rolled back by the annotation of extensions/v1beta1, though nothing can be proven.
func TestADeploymentGoesBackAndBeginsWithoutAProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := schedule.Schedule{Nodes: 2, Owners: []schedule.Owner{{Kind: "Deployment", Name: "rolled", Replicas: 3, Recreate: true}}}
		server, f, tr, manager := start(t, arms.Ours, s)
		spec := func() (of appsv1.DeploymentSpec) {
			server.Look(func(truth model.Truth) {
				of = truth.Get(model.Deployments, traffic.Namespace, "rolled").(*appsv1.Deployment).Spec
			})
			return of
		}
		time.Sleep(time.Minute)
		first := spec().Template.Spec.Containers[0].Image
		tr.Do(schedule.Step{Action: schedule.Roll, Target: "rolled"})
		time.Sleep(unprovenFrom)
		require.NotEqual(t, first, spec().Template.Spec.Containers[0].Image)
		f.Do(schedule.Step{Action: schedule.Unprovable, For: unproven}, tr.After)
		model.Change(server, model.Deployments, traffic.Namespace, "rolled", func(d *appsv1.Deployment) {
			metav1.SetMetaDataAnnotation(&d.ObjectMeta, appsv1.DeprecatedRollbackTo, "1")
		})
		time.Sleep(10 * time.Second)
		require.Equal(t, first, spec().Template.Spec.Containers[0].Image)
		require.Len(t, manager.Waits(), 1, "its pods of before wait for a proof")
		tr.Make(schedule.Owner{Kind: "Deployment", Name: "begins", Replicas: 3, Recreate: true})
		time.Sleep(10 * time.Second)
		server.Look(func(truth model.Truth) { require.Equal(t, 3, podsOf(truth, of("begins"))) })
	})
}

// A claim that is to be deleted with its StatefulSet gets its owner once the set and its pods are proven. If the set is deleted before that, the claim is left;
// on stock it has its owner by then.
func TestAClaimGetsItsOwnerOnceItsSetIsProven(t *testing.T) {
	const length = 5 * time.Minute
	for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
		synctest.Test(t, func(t *testing.T) {
			server, f, tr, manager := start(t, arm, schedule.Schedule{Nodes: 2, Owners: []schedule.Owner{
				{Kind: "StatefulSet", Name: "kept", Replicas: 1, Claims: true}, {Kind: "StatefulSet", Name: "deleted", Replicas: 1, Claims: true}}})
			owned := func(set string) (is bool) {
				server.Look(func(truth model.Truth) {
					is = len(truth.Get(model.Claims, traffic.Namespace, "data-"+set+"-0").GetOwnerReferences()) > 0
				})
				return is
			}
			time.Sleep(time.Minute)
			f.Do(schedule.Step{Action: schedule.Unprovable, For: length}, tr.After)
			for _, set := range []string{"kept", "deleted"} {
				require.False(t, owned(set), arm)
				model.Change(server, model.StatefulSets, traffic.Namespace, set, func(s *appsv1.StatefulSet) {
					s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
				})
			}
			time.Sleep(length / 2)
			require.Equal(t, arm == arms.Stock, owned("kept"), arm)
			require.Equal(t, arm == arms.Stock, owned("deleted"), arm)
			require.Equal(t, arm == arms.Ours, len(manager.Waits()) > 0, arm)
			server.Delete(model.StatefulSets, traffic.Namespace, "deleted", new(int64(0)))
			time.Sleep(length/2 + time.Minute)
			require.True(t, owned("kept"), arm)
			require.Equal(t, arm == arms.Stock, owned("deleted"), arm)
		})
	}
}
