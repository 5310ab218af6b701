// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// An owner that is made again under the name of another one does not wait until a cache shows what was written for that, unless it does on stock.
func TestAnOwnerDoesNotWaitForWhatItsPredecessorHasWritten(t *testing.T) {
	for kind, held := range map[string]*model.Resource{"Deployment": model.ReplicaSets, "StatefulSet": model.Pods} {
		t.Run(kind, func(t *testing.T) {
			took := map[arms.Arm]time.Duration{}
			for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
				synctest.Test(t, func(t *testing.T) {
					o := schedule.Owner{Kind: kind, Name: "owner", Replicas: 3, Parallel: true}
					server, f, tr, _ := start(t, arm, schedule.Schedule{Nodes: 3, Owners: []schedule.Owner{o}})
					time.Sleep(time.Minute)
					f.Do(schedule.Step{Action: schedule.Hold, Target: held.GroupVersionResource.Resource, For: 2 * time.Minute}, tr.After)
					tr.Do(schedule.Step{Action: schedule.Scale, Target: "owner", N: 0})
					time.Sleep(10 * time.Second)
					tr.Remove(o)
					for _, name := range labelled(server, held) {
						server.Delete(held, traffic.Namespace, name, new(int64(0)))
					}
					time.Sleep(10 * time.Second)
					tr.Make(o)
					took[arm] = until(server, func(truth model.Truth) bool {
						owner := truth.Get(traffic.Kinds[kind], traffic.Namespace, "owner")
						return slices.ContainsFunc(truth.List(held), func(object model.Object) bool { return metav1.IsControlledBy(object, owner) })
					})
				})
			}
			t.Logf("its first object is there after: %v", took)
			require.LessOrEqual(t, took[arms.Ours], took[arms.Stock]+2*time.Second)
		})
	}
}

// Nor does it pause because writes of that have failed for minutes, though it takes over what that has left, and proofs are slow.
func TestAnOwnerDoesNotPauseForTheFailuresOfItsPredecessor(t *testing.T) {
	const fails = 12 * time.Minute // The last try of a queue is a minute ago then.
	for kind, written := range map[string]string{"Deployment": "replicasets", "StatefulSet": "pods"} {
		t.Run(kind, func(t *testing.T) {
			took := map[arms.Arm]time.Duration{}
			for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
				synctest.Test(t, func(t *testing.T) {
					o := schedule.Owner{Kind: kind, Name: "owner", Replicas: 4}
					server, f, tr, _ := start(t, arm, schedule.Schedule{Nodes: 3, Owners: []schedule.Owner{o}})
					time.Sleep(time.Minute)
					f.Do(schedule.Step{Action: schedule.FailWrites, Target: written, For: fails}, tr.After)
					tr.Do(schedule.Step{Action: schedule.Scale, Target: "owner", N: 1})
					time.Sleep(fails)
					own := traffic.Kinds[kind].GroupVersionResource.Resource
					f.Do(schedule.Step{Action: schedule.SlowReads, Target: "pods", Delay: 4 * time.Second, For: 20 * time.Minute}, tr.After)
					f.Do(schedule.Step{Action: schedule.SlowReads, Target: "replicasets", Delay: 4 * time.Second, For: 20 * time.Minute}, tr.After)
					f.Do(schedule.Step{Action: schedule.Hold, Target: own, For: 5 * time.Second}, tr.After)
					f.Do(schedule.Step{Action: schedule.Hold, Target: written, For: 5 * time.Second}, tr.After)
					for _, r := range []*model.Resource{model.ReplicaSets, model.Pods} {
						if r.GroupVersionResource.Resource == written {
							for _, name := range labelled(server, r) {
								model.Change(server, r, traffic.Namespace, name, func(object model.Object) { object.SetOwnerReferences(nil) })
							}
						}
					}
					server.Delete(traffic.Kinds[kind], traffic.Namespace, "owner", new(int64(0)))
					o.Replicas = 1
					tr.Make(o)
					took[arm] = until(server, func(truth model.Truth) bool { return podsOf(truth, of("owner")) == 1 })
				})
			}
			t.Logf("the old pods are gone after: %v", took)
			require.LessOrEqual(t, took[arms.Ours], took[arms.Stock]+30*time.Second, "slow proofs")
		})
	}
}

// Nor do the values of a quota or a budget.
func TestAValueDoesNotPauseForTheFailuresOfItsPredecessor(t *testing.T) {
	const fails = 12 * time.Minute
	for _, r := range []*model.Resource{model.Quotas, model.Budgets} {
		for name, proofs := range map[string]schedule.Step{"slow": {Action: schedule.SlowReads, Target: "pods", Delay: 4 * time.Second}, "none": {Action: schedule.Unprovable}} {
			t.Run(r.GroupVersionResource.Resource+" "+name, func(t *testing.T) {
				took := map[arms.Arm]time.Duration{}
				for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
					synctest.Test(t, func(t *testing.T) {
						server, f, tr, _ := start(t, arm, guarded)
						time.Sleep(time.Minute)
						f.Do(schedule.Step{Action: schedule.FailWrites, Target: r.GroupVersionResource.Resource, For: fails}, tr.After)
						tr.Do(schedule.Step{Action: schedule.Empty, Target: tenant, N: 1})
						tr.Do(schedule.Step{Action: schedule.SetMin, Target: tenant, N: 1})
						time.Sleep(fails)
						proofs.For = 20 * time.Minute
						f.Do(proofs, tr.After)
						f.Do(schedule.Step{Action: schedule.Hold, Target: r.GroupVersionResource.Resource, For: 5 * time.Second}, tr.After)
						remakeValue(server, r)
						took[arm] = until(server, func(truth model.Truth) bool {
							if r == model.Quotas {
								return len(quotaOf(truth).Used) > 0
							}
							return budgetOf(truth).DisruptionsAllowed > 0
						})
					})
				}
				t.Logf("the value is there after: %v", took)
				longest := map[string]time.Duration{"slow": 10 * time.Second, "none": 90 * time.Second}[name]
				require.LessOrEqual(t, took[arms.Ours], took[arms.Stock]+longest, "the longest wait for a proof")
			})
		}
	}
}

// remakeValue deletes the tenant's quota or budget and makes it again.
func remakeValue(server *model.Server, r *model.Resource) {
	var again model.Object
	server.Look(func(truth model.Truth) { again = truth.Get(r, tenant, tenant).DeepCopyObject().(model.Object) })
	again.SetUID("")
	again.SetResourceVersion("")
	switch o := again.(type) {
	case *corev1.ResourceQuota:
		o.Status = corev1.ResourceQuotaStatus{}
	case *policyv1.PodDisruptionBudget:
		o.Status = policyv1.PodDisruptionBudgetStatus{}
	}
	server.Delete(r, tenant, tenant, new(int64(0)))
	server.Create(r, again)
}

// labelled are the objects with the label of the owner "owner".
func labelled(server *model.Server, r *model.Resource) (names []string) {
	server.Look(func(truth model.Truth) {
		for _, o := range truth.List(r) {
			if o.GetLabels()["app"] == "owner" {
				names = append(names, o.GetName())
			}
		}
	})
	return names
}

// until is how long it takes until something is so, 30 min at most.
func until(server *model.Server, is func(model.Truth) bool) time.Duration {
	began := time.Now()
	for so := false; !so && time.Since(began) < 30*time.Minute; {
		time.Sleep(100 * time.Millisecond)
		server.Look(func(truth model.Truth) { so = is(truth) })
	}
	return time.Since(began)
}
