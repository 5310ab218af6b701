// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/faults"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// A quota that is made together with the pods that it counts, as by one apply of a folder, soon has them all counted. Until what is used
// is published for the first time the apiserver charges nothing, and upstream recalculates no quota for a pod that is made: on stock, what
// comes in the 2 ms of that request is not counted for 5 min. The proof of a first value takes longer.
func TestQuotaIsMadeWithItsPods(t *testing.T) {
	const pods = 10
	for _, slow := range []time.Duration{0, 30 * time.Millisecond, 80 * time.Millisecond, 300 * time.Millisecond} {
		t.Run(slow.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := model.New()
				f := faults.New(server)
				server.Fate = f.Fate
				tr := traffic.Start(server, schedule.Schedule{Nodes: 1})
				tr.MakeNamespace(tenant)
				manager, err := arms.Start(context.Background(), arms.Ours, server, arms.Flags{Guards: true})
				require.NoError(t, err)
				defer func() {
					tr.End()
					manager.End()
				}()
				time.Sleep(10 * time.Second)
				f.Do(schedule.Step{Action: schedule.SlowReads, Target: "pods", Delay: slow, For: time.Minute}, tr.After)
				server.Create(model.Quotas, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: tenant},
					Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100")}}})
				for i := range pods {
					tr.After(time.Duration(1+i)*(7*time.Millisecond+slow)/pods, func() {
						server.TryCreate(model.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: fmt.Sprint("pod-", i)}})
					})
				}
				time.Sleep(3 * time.Second)
				server.Look(func(truth model.Truth) {
					used := quotaOf(truth).Used[corev1.ResourcePods]
					require.EqualValues(t, podsOf(truth, func(*corev1.Pod) bool { return true }), used.Value())
				})
			})
		})
	}
}

// A pod is charged before it is made. A quota that is recalculated in between takes the charge back, for 5 min, as no quota is recalculated
// for a pod that is made. Stock recalculates a new quota once, when it is made.
func TestWhatIsBeingMadeStaysCharged(t *testing.T) {
	for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
		t.Run(string(arm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := model.New()
				tr := traffic.Start(server, schedule.Schedule{Nodes: 1})
				tr.MakeNamespace(tenant)
				manager, err := arms.Start(context.Background(), arm, server, arms.Flags{Guards: true})
				require.NoError(t, err)
				defer func() {
					tr.End()
					manager.End()
				}()
				time.Sleep(10 * time.Second)
				server.Create(model.Quotas, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: tenant},
					Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100")}}})
				time.Sleep(100 * time.Millisecond)
				pods := int64(0)
				for range 20 { // for 4 s, with a pod under way all the time
					charged := *resource.NewQuantity(pods+1, resource.DecimalSI)
					require.True(t, model.Change(server, model.Quotas, tenant, tenant, func(q *corev1.ResourceQuota) {
						require.Contains(t, q.Status.Used, corev1.ResourcePods)
						q.Status.Used[corev1.ResourcePods] = charged
					}))
					time.Sleep(200 * time.Millisecond)
					server.Create(model.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: fmt.Sprint("pod-", pods)}})
					pods++
					server.Look(func(truth model.Truth) {
						used := quotaOf(truth).Used[corev1.ResourcePods]
						require.EqualValues(t, pods, used.Value())
					})
				}
			})
		})
	}
}

// A quota that falls because a pod is deleted takes back the charge for one that is being made. Stock notices up to 5 min later, and lets in one more until then.
func TestQuotaFallsWhileAPodIsMade(t *testing.T) {
	for arm, noticed := range map[arms.Arm]bool{arms.Stock: false, arms.Ours: true} {
		t.Run(string(arm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, _, _, _ := start(t, arm, schedule.Schedule{Nodes: 1, Tenants: []schedule.Tenant{{Name: tenant, Pods: 4, Hard: 100}}})
				used := func() (n, pods int64) {
					server.Look(func(truth model.Truth) {
						used := quotaOf(truth).Used[corev1.ResourcePods]
						n, pods = used.Value(), int64(podsOf(truth, func(*corev1.Pod) bool { return true }))
					})
					return n, pods
				}
				time.Sleep(time.Minute)
				n, pods := used()
				require.Equal(t, pods, n)
				require.True(t, model.Change(server, model.Quotas, tenant, tenant, func(q *corev1.ResourceQuota) {
					q.Status.Used[corev1.ResourcePods] = *resource.NewQuantity(n+1, resource.DecimalSI)
				}))
				server.Delete(model.Pods, tenant, "pod-0", new(int64(0)))
				time.Sleep(200 * time.Millisecond)
				server.Create(model.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "late"}})
				n, pods = used()
				require.Equal(t, pods-1, n, "the charge is taken back")
				time.Sleep(2 * time.Second)
				n, pods = used()
				require.Equal(t, noticed, n == pods, "%d used, %d pods", n, pods)
			})
		})
	}
}

// A quota that says less than there is, as somebody has written, and that cannot be written, is tried as often as on stock, also while the apiserver
// charges it for pods that are made.
func TestQuotaThatSaysTooLittleCannotBeWritten(t *testing.T) {
	for name, charges := range map[string]bool{"by anybody": false, "by its controller": true} {
		t.Run(name, func(t *testing.T) {
			tries := map[arms.Arm]int{}
			for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
				synctest.Test(t, func(t *testing.T) {
					server, f, tr, _ := start(t, arm, schedule.Schedule{Nodes: 1, Tenants: []schedule.Tenant{{Name: tenant, Pods: 4, Hard: 1000}}})
					time.Sleep(time.Minute)
					f.Do(schedule.Step{Action: schedule.FailWrites, Target: "resourcequotas", For: 2 * time.Minute}, tr.After)
					server.Observe = func(_ model.Truth, r *model.Request, done bool) {
						if done && r.Write() && r.Resource == model.Quotas {
							tries[arm]++
						}
					}
					require.True(t, model.Change(server, model.Quotas, tenant, tenant, func(q *corev1.ResourceQuota) { q.Status.Used[corev1.ResourcePods] = resource.MustParse("0") }))
					time.Sleep(100 * time.Millisecond) // The quota is to be seen so when it is recalculated, and no other pod but the one that is gone.
					server.Delete(model.Pods, tenant, "pod-0", new(int64(0)))
					time.Sleep(100 * time.Millisecond)
					for i := range 220 {
						if charges {
							require.True(t, model.Change(server, model.Quotas, tenant, tenant, func(q *corev1.ResourceQuota) {
								q.Status.Used[corev1.ResourcePods] = *resource.NewQuantity(int64(i+1), resource.DecimalSI)
							}))
							server.Create(model.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: fmt.Sprint("more-", i)}})
						}
						time.Sleep(500 * time.Millisecond)
					}
				})
			}
			t.Log(tries)
			require.Greater(t, tries[arms.Stock], 10)
			require.LessOrEqual(t, tries[arms.Ours], tries[arms.Stock]+1)
		})
	}
}

// What a budget allowed before the cache of pods became stale stays allowed until the budget is looked at again, as on stock.
func TestEvictionsStayAllowedWhilePodsAreNotSeen(t *testing.T) {
	const held = time.Minute
	for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
		t.Run(string(arm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, f, tr, _ := start(t, arm, schedule.Schedule{Nodes: 2,
					Tenants: []schedule.Tenant{{Name: tenant, Pods: 4, Hard: 5}}, Budgets: []schedule.Budget{{Over: tenant, MinAvailable: 3}}})
				allowed := func() (n int32) {
					server.Look(func(truth model.Truth) { n = budgetOf(truth).DisruptionsAllowed })
					return n
				}
				time.Sleep(time.Minute)
				require.EqualValues(t, 1, allowed())
				f.Do(schedule.Step{Action: schedule.Hold, Target: "pods", For: held}, tr.After)
				tr.Do(schedule.Step{Action: schedule.EndPods, Target: tenant, N: 1})
				time.Sleep(held - time.Second)
				require.EqualValues(t, 1, allowed(), "one eviction too many")
				time.Sleep(5 * time.Second)
				require.Zero(t, allowed(), "once the cache has caught up")
			})
		})
	}
}

// A quota that cannot be written while proofs of pods are slow is tried as often as by upstream: of its two values each would wake it once proven, and
// one wait while the other is tried. Once it can be written an event has it written, and not only the end of the backoff, which may be minutes off.
func TestQuotaThatCannotBeWrittenWhileProofsAreSlow(t *testing.T) {
	const from, length, event = time.Minute, 140 * time.Second, 4 * time.Minute // All quotas are looked at every 5 min.
	s := schedule.Schedule{Nodes: 2, Ended: 2, Settle: 3 * time.Minute, Tenants: []schedule.Tenant{{Name: tenant, Pods: 6, Hard: 8}}, Steps: []schedule.Step{
		{At: from, Action: schedule.SlowReads, Target: "pods", Delay: 4 * time.Second, For: 5 * time.Minute},
		{At: from, Action: schedule.FailWrites, Target: "resourcequotas", For: length},
		{At: from + 2*time.Second, Action: schedule.EndPods, Target: tenant, N: 5},
		{At: event, Action: schedule.EndPods, Target: tenant, N: 6},
	}}
	pods := schedule.Value{Kind: schedule.QuotaValue, Namespace: tenant, Name: tenant, Of: "pods"}
	stock, ours := both(t, s)
	tries, until := map[arms.Arm]int{}, map[arms.Arm]time.Duration{}
	for arm, r := range map[arms.Arm]validate.Record{arms.Stock: stock, arms.Ours: ours} {
		tries[arm] = r.Requests[model.Owner{Kind: schedule.QuotaValue, NamespacedName: types.NamespacedName{Namespace: tenant, Name: tenant}}]["update resourcequotas/status"]
		for _, span := range r.Withheld[pods] {
			until[arm] = max(until[arm], span.From+span.For)
		}
	}
	t.Logf("updates: stock %d, ours %d; written at: stock %s, ours %s", tries[arms.Stock], tries[arms.Ours], until[arms.Stock], until[arms.Ours])
	require.Greater(t, tries[arms.Stock], 10)
	require.LessOrEqual(t, tries[arms.Ours], tries[arms.Stock]*5/4+4)
	require.InDelta(t, event, until[arms.Stock], float64(time.Second))
	require.LessOrEqual(t, until[arms.Ours], event+15*time.Second)
}

// A pod that is made and ends, or is deleted, while the cache of pods is stale frees its room once the cache has caught up. Upstream recalculates no
// quota for a pod that is new, so where a relist shows no pod, or one that has ended already, stock frees it up to 5 min later. Ours relists where
// stock does not, too: it ends a stalled watch.
func TestQuotaOfPodsThatAListSkips(t *testing.T) {
	const from, length = 6 * time.Second, time.Minute // Its user makes the pods after 10 s.
	ended, deleted := schedule.Step{Action: schedule.EndPods, N: 2}, schedule.Step{Action: schedule.Keep, N: 0}
	for name, h := range map[string]struct {
		then    schedule.Step
		expires bool // the watches end with 410 meanwhile
	}{
		"ended":                         {ended, false},
		"ended, and stock relists, too": {ended, true},
		"deleted, and stock relists":    {deleted, true},
	} {
		t.Run(name, func(t *testing.T) {
			h.then.At, h.then.Target = 20*time.Second, tenant
			s := schedule.Schedule{Nodes: 2, Monitor: true, Settle: 3 * time.Minute, Tenants: []schedule.Tenant{{Name: tenant, Pods: 2, Hard: 3}},
				Steps: []schedule.Step{{At: from, Action: schedule.Hold, Target: "pods", For: length}, h.then}}
			if h.expires {
				s.Steps = append(s.Steps, schedule.Step{At: 25 * time.Second, Action: schedule.Expire, Target: "pods"})
			}
			stock, ours := both(t, s)
			freed := func(r validate.Record) time.Duration {
				withheld := r.Withheld[schedule.Value{Kind: schedule.QuotaValue, Namespace: tenant, Name: tenant, Of: "pods"}]
				require.NotEmpty(t, withheld)
				last := withheld[len(withheld)-1]
				return last.From + last.For
			}
			require.Equal(t, h.expires, freed(stock) >= s.End()+s.Settle, "stock freed the room after %s", freed(stock))
			require.LessOrEqual(t, freed(ours), from+length+2*time.Second)
		})
	}
}
