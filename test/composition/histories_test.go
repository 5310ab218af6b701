// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/report"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// both runs a schedule on both arms, and requires that ours is not worse by any rule.
func both(t *testing.T, s schedule.Schedule) (stock, ours validate.Record) {
	t.Helper()
	return bothBut(t, s, func(validate.Violation) bool { return false })
}

// bothBut is both, but for violations that the caller judges otherwise.
func bothBut(t *testing.T, s schedule.Schedule, but func(validate.Violation) bool) (stock, ours validate.Record) {
	t.Helper()
	stock, ours = run(t, arms.Stock, s, nil), run(t, arms.Ours, s, nil)
	for _, v := range validate.Compare(s, stock, ours) {
		if !but(v) {
			t.Errorf("%s", v)
		}
	}
	if t.Failed() || testing.Verbose() {
		t.Log(report.Records(s, stock, ours))
	}
	return stock, ours
}

var kinds = []string{"ReplicaSet", "DaemonSet", "StatefulSet", "Job", "ReplicationController"}

// refused is a history in which an owner lacks a pod and can make none for 30 minutes.
func refused(kind string, action schedule.Action, monitor bool) schedule.Schedule {
	return schedule.Schedule{
		Nodes: 3, Monitor: monitor, Settle: time.Minute,
		Owners: []schedule.Owner{{Kind: kind, Name: "owner", Replicas: 3}, {Kind: kind, Name: "neighbour", Replicas: 3}},
		Steps: append(flips("neighbour", 40*time.Second, 180),
			schedule.Step{At: time.Minute, Action: action, Target: "owner", For: 30 * time.Minute},
			schedule.Step{At: 61 * time.Second, Action: schedule.DeletePod, Target: "owner"}),
	}
}

// flips has a pod turn unready for 3 s, every 10 s.
func flips(owner string, at time.Duration, times int) (steps []schedule.Step) {
	for i := range times {
		steps = append(steps, schedule.Step{At: at + time.Duration(i)*10*time.Second, Action: schedule.Unready, Target: owner, N: i, For: 3 * time.Second})
	}
	return steps
}

// An owner whose pods a quota or a policy refuses is tried as often as upstream tries it, with exponential backoff.
func TestQuotaRefusesForLong(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := refused(kind, schedule.Refuse, false)
			stock, ours := both(t, s)
			owner := validate.Owners(s)[0]
			require.Greater(t, stock.Requests[owner]["create pods"], 10)
			require.LessOrEqual(t, ours.Requests[owner]["create pods"], stock.Requests[owner]["create pods"]+2)
		})
	}
}

// So is one whose pods an admission webhook is asked about that does not answer.
func TestWebhookIsDownForLong(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := refused(kind, schedule.Webhook, true)
			stock, ours := both(t, s)
			owner := validate.Owners(s)[0]
			require.Greater(t, stock.Requests[owner]["create pods"], 10)
			require.LessOrEqual(t, ours.Requests[owner]["create pods"], stock.Requests[owner]["create pods"]+2)
		})
	}
}

// An owner in a namespace that is being deleted tries to make its pods again once, and no more: upstream's controllers take the refusal for a creation, and
// wait for that. That of StatefulSets has it tried again by its queue's backoff.
func TestNamespaceIsDeleted(t *testing.T) {
	for _, kind := range kinds {
		for _, apart := range []time.Duration{10 * time.Millisecond, time.Second} {
			t.Run(kind+" "+apart.String(), func(t *testing.T) {
				s := schedule.Schedule{Nodes: 6, Settle: time.Minute, Owners: []schedule.Owner{{Kind: kind, Name: "owner", Replicas: 6}},
					Steps: []schedule.Step{{At: time.Minute, Action: schedule.Ending, Target: "owner", For: 20 * time.Minute}}}
				for i := range 6 {
					s.Steps = append(s.Steps, schedule.Step{At: 61*time.Second + time.Duration(i)*apart, Action: schedule.DeletePod, Target: "owner"})
				}
				stock, ours := both(t, s)
				owner := validate.Owners(s)[0]
				require.Greater(t, stock.Requests[owner]["create pods"], 6)
				if kind != "StatefulSet" {
					require.LessOrEqual(t, ours.Requests[owner]["create pods"], stock.Requests[owner]["create pods"]+1)
				}
			})
		}
	}
}

// A deletion that fails is tried no more often where its cache changes all the time, and proofs take a while: each time what was read is old once it is proven.
func TestADeletionFailsWhileWhatIsReadGoesOnChanging(t *testing.T) {
	for _, kind := range []string{"DaemonSet", "ReplicaSet", "StatefulSet", "Job"} {
		for _, busy := range []string{"nodes", "pods", "widgets"} {
			t.Run(kind+" "+busy, func(t *testing.T) {
				s := schedule.Schedule{Nodes: 3, Settle: time.Minute, Owners: []schedule.Owner{{Kind: kind, Name: "owner", Replicas: 3}}, Steps: []schedule.Step{
					{At: 20 * time.Second, Action: schedule.SlowReads, Target: busy, Delay: 200 * time.Millisecond, For: 100 * time.Second},
					{At: 20 * time.Second, Action: schedule.Busy, Target: busy, N: 19, For: 100 * time.Second},
					{At: 40 * time.Second, Action: schedule.FailWrites, Target: "pods", For: time.Minute},
					{At: 41 * time.Second, Action: schedule.Flip, Target: "owner", For: 57 * time.Second},
				}}
				if kind != "DaemonSet" {
					s.Steps[3] = schedule.Step{At: 41 * time.Second, Action: schedule.Scale, Target: "owner", N: 1}
				}
				stock, ours := both(t, s)
				owner := validate.Owners(s)[0]
				require.LessOrEqual(t, ours.Requests[owner]["delete pods"], stock.Requests[owner]["delete pods"]*5/4+3)
			})
		}
	}
}

// So is one that has a pod to delete as well, of which it cannot be proven that it may: it is not the put-off deletion that has it tried again.
func TestQuotaRefusesWhileADeletionWaits(t *testing.T) {
	for name, troubles := range map[string][]schedule.Step{
		"a quota":                          {{Action: schedule.Refuse, Target: "owner"}},
		"a webhook":                        {{Action: schedule.Webhook, Target: "owner"}},
		"a quota, and no status is taken":  {{Action: schedule.Refuse, Target: "owner"}, {Action: schedule.FailWrites, Target: "daemonsets"}},
		"a quota, and reads take too long": {{Action: schedule.Refuse, Target: "owner"}, {Action: schedule.SlowReads, Target: "pods", Delay: 20 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			s := schedule.Schedule{
				Nodes: 3, Settle: time.Minute, Owners: []schedule.Owner{{Kind: "DaemonSet", Name: "owner"}},
				Steps: []schedule.Step{
					{At: 20 * time.Second, Action: schedule.Relabel, Target: "owner", N: 1, For: 41 * time.Second}, // Then a pod is missing.
					{At: time.Minute, Action: schedule.Unprovable, For: 30 * time.Minute},
					{At: 62 * time.Second, Action: schedule.Relabel, Target: "owner", N: 2, For: time.Hour}, // Then one is too many.
				},
			}
			for _, step := range troubles {
				step.At, step.For = time.Minute, 30*time.Minute
				s.Steps = append(s.Steps, step)
			}
			stock, ours := both(t, s)
			owner := validate.Owners(s)[0]
			require.Greater(t, stock.Requests[owner]["create pods"], 10)
			require.Equal(t, 2, ours.Requests[owner]["delete pods"])
			require.LessOrEqual(t, ours.Requests[owner]["create pods"], stock.Requests[owner]["create pods"]+8)
			require.LessOrEqual(t, ours.Requests[owner]["update daemonsets/status"], stock.Requests[owner]["update daemonsets/status"]+12, "two for each reconcile that fails")
		})
	}
}

// So is each write that fails, whatever it is, and whether it was refused or nobody knows what became of it: it is not what waits for a proof that has it tried
// again. That may be the write itself, which is tried once it is proven, and fails.
func TestWritesFailWhileADeletionWaits(t *testing.T) {
	const length = 30 * time.Minute
	at := func(steps ...schedule.Step) (out []schedule.Step) {
		for _, step := range steps {
			step.At += time.Minute
			step.For = length
			out = append(out, step)
		}
		return out
	}
	slow := func(resource string) schedule.Step {
		return schedule.Step{Action: schedule.SlowReads, Target: resource, Delay: 5 * time.Second}
	}
	tooMany := schedule.Step{At: time.Second, Action: schedule.Scale, Target: "owner", N: 1}
	for name, tc := range map[string]struct {
		kind, write string
		steps       []schedule.Step
	}{
		"a DaemonSet's pods, of which nobody knows": {"DaemonSet", "create pods", append(at(schedule.Step{Action: schedule.Broken, Target: "nodes", N: 1}, schedule.Step{Action: schedule.TimeOut, Target: "pods"},
			schedule.Step{At: 2 * time.Second, Action: schedule.Relabel, Target: "owner", N: 2}), schedule.Step{At: 20 * time.Second, Action: schedule.Relabel, Target: "owner", N: 1, For: 41 * time.Second})},
		"a DaemonSet's status, of which nobody knows": {"DaemonSet", "update daemonsets/status", at(schedule.Step{Action: schedule.Broken, Target: "nodes", N: 1},
			schedule.Step{Action: schedule.TimeOut, Target: "daemonsets"}, schedule.Step{Action: schedule.Relabel, Target: "owner", N: 2})},
		"a ReplicaSet's status, of which nobody knows":   {"ReplicaSet", "update replicasets/status", at(schedule.Step{Action: schedule.Broken, Target: "pods", N: 1}, schedule.Step{Action: schedule.TimeOut, Target: "replicasets"}, tooMany)},
		"a StatefulSet's status, of which nobody knows":  {"StatefulSet", "update statefulsets/status", at(schedule.Step{Action: schedule.Broken, Target: "pods", N: 1}, schedule.Step{Action: schedule.TimeOut, Target: "statefulsets"}, tooMany)},
		"a Deployment's status, which a webhook refuses": {"Deployment", "update deployments/status", at(schedule.Step{Action: schedule.Unprovable}, schedule.Step{Action: schedule.FailWrites, Target: "deployments"}, tooMany)},
		"a Deployment's scale-down, which a webhook refuses, and reads of Deployments are slow": {"Deployment", "update replicasets",
			at(schedule.Step{Action: schedule.SlowReads, Target: "deployments", Delay: 1200 * time.Millisecond}, schedule.Step{Action: schedule.FailWrites, Target: "replicasets"}, tooMany)},
		"a CronJob's Jobs, which a quota refuses": {"CronJob", "create jobs", at(schedule.Step{Action: schedule.Unprovable}, schedule.Step{Action: schedule.Refuse, Target: "owner"})},
		"a Deployment's scale-down, which a webhook refuses": {"Deployment", "update replicasets",
			at(slow("deployments"), slow("replicasets"), slow("pods"), schedule.Step{Action: schedule.FailWrites, Target: "replicasets"}, tooMany)},
	} {
		t.Run(name, func(t *testing.T) {
			s := schedule.Schedule{Nodes: 3, Owners: []schedule.Owner{{Kind: tc.kind, Name: "owner", Replicas: 4}}, Steps: tc.steps}
			if tc.kind == "CronJob" {
				s.Owners, s.CronJobs = nil, []schedule.CronJob{{Name: "owner", Policy: "Forbid", Keep: 2}}
			}
			owner := model.Owner{Kind: tc.kind, NamespacedName: types.NamespacedName{Namespace: traffic.Namespace, Name: "owner"}}
			stock, ours := run(t, arms.Stock, s, nil).Requests[owner][tc.write], run(t, arms.Ours, s, nil).Requests[owner][tc.write]
			t.Logf("%s: stock %d, ours %d", tc.write, stock, ours)
			require.Greater(t, stock, 10)
			require.LessOrEqual(t, ours, stock*5/4+20, "some twelve pauses, of up to 5 min, and two status writes for each")
		})
	}
}

// An outage takes two hours. What fails is tried as often as a queue does, whose delays grow up to 1,000 s: shorter pauses made more than twice the requests.
func TestStatusesFailForTwoHoursWhileADeletionWaits(t *testing.T) {
	const length = 2 * time.Hour
	for kind, resource := range map[string]string{"ReplicaSet": "replicasets", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"} {
		t.Run(kind, func(t *testing.T) {
			tooMany := schedule.Step{Action: schedule.Scale, Target: "owner", N: 1}
			if kind == "DaemonSet" {
				tooMany = schedule.Step{Action: schedule.Relabel, Target: "owner", N: 2, For: length}
			}
			tooMany.At = 62 * time.Second
			s := schedule.Schedule{Nodes: 3, Settle: 3 * time.Minute, Owners: []schedule.Owner{{Kind: kind, Name: "owner", Replicas: 4}}, Steps: []schedule.Step{
				{At: time.Minute, Action: schedule.FailWrites, Target: resource, For: length}, {At: time.Minute, Action: schedule.Broken, Target: "pods", N: 1, For: length}, tooMany,
			}}
			owner, status := validate.Owners(s)[0], "update "+resource+"/status"
			stock, ours := run(t, arms.Stock, s, nil).Requests[owner][status], run(t, arms.Ours, s, nil).Requests[owner][status]
			t.Logf("%s: stock %d, ours %d", status, stock, ours)
			require.Greater(t, stock, 30)
			require.LessOrEqual(t, ours, stock*5/4+8, "two series, of the status and of the action")
		})
	}
}

// Writes of an owner fail for some seconds, and reads are slow. Its action is put off then, and is done once that is over: soon, and not after a pause of minutes.
func TestAnActionThatFailedForSecondsIsDoneSoon(t *testing.T) {
	const length = 12 * time.Second
	for kind, resources := range map[string][2]string{
		"Deployment": {"replicasets", "deployments"}, "ReplicaSet": {"pods", "replicasets"}, "StatefulSet": {"pods", "statefulsets"}, "ReplicationController": {"pods", "replicationcontrollers"},
	} {
		t.Run(kind, func(t *testing.T) {
			s := schedule.Schedule{Nodes: 3, Monitor: true, Settle: 3 * time.Minute, Owners: []schedule.Owner{{Kind: kind, Name: "owner", Replicas: 4}}, Steps: []schedule.Step{
				{At: time.Minute, Action: schedule.FailWrites, Target: resources[0], For: length},
				{At: 61 * time.Second, Action: schedule.Scale, Target: "owner", N: 1},
				{At: 62 * time.Second, Action: schedule.SlowReads, Target: resources[1], Delay: 1200 * time.Millisecond, For: length - 2*time.Second},
			}}
			owner := validate.Owners(s)[0]
			stock, ours := both(t, s)
			for arm, r := range map[arms.Arm]validate.Record{arms.Stock: stock, arms.Ours: ours} {
				require.NotEmpty(t, r.Excess[owner], arm)
				for _, span := range r.Excess[owner] {
					require.False(t, span.Open, arm)
					require.LessOrEqual(t, span.For, 4*length, arm)
				}
			}
		})
	}
}

// A ReplicaSet says that a deletion has failed until it is tried again, also while that waits for a proof: the condition that came and went was an event
// each time, which had the deletion tried at once.
func TestADeletionThatFailedWaits(t *testing.T) {
	for name, fault := range map[string]schedule.Step{
		"no list of ReplicaSets is answered": {Action: schedule.Broken, Target: "replicasets", N: 1},
		"lists of pods take 4 s":             {Action: schedule.SlowReads, Target: "pods", Delay: 4 * time.Second},
		"lists of pods take 20 s":            {Action: schedule.SlowReads, Target: "pods", Delay: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			fault.At, fault.For = time.Minute, 12*time.Minute
			s := schedule.Schedule{Nodes: 3, Monitor: true, Settle: 3 * time.Minute, Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "owner", Replicas: 4}}, Steps: []schedule.Step{
				{At: fault.At, Action: schedule.FailWrites, Target: "pods", For: fault.For}, fault, {At: 62 * time.Second, Action: schedule.Scale, Target: "owner", N: 1},
			}}
			stock, ours := both(t, s)
			owner := validate.Owners(s)[0]
			t.Logf("deletions: stock %d, ours %d; statuses: stock %d, ours %d", stock.Requests[owner]["delete pods"], ours.Requests[owner]["delete pods"],
				stock.Requests[owner]["update replicasets/status"], ours.Requests[owner]["update replicasets/status"])
			require.Greater(t, stock.Requests[owner]["delete pods"], 30)
			require.LessOrEqual(t, ours.Requests[owner]["delete pods"], stock.Requests[owner]["delete pods"]+12)
			require.LessOrEqual(t, ours.Requests[owner]["update replicasets/status"], stock.Requests[owner]["update replicasets/status"]+8)
		})
	}
}

// While pod garbage collection waits to delete ended pods it looks at all no more often: one that it deletes again and again, as a finalizer keeps it, is
// deleted as often as by upstream.
func TestPodGCLooksNoMoreOftenWhileItWaits(t *testing.T) {
	const length = 30 * time.Minute
	deleted := map[arms.Arm]int{}
	for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
		synctest.Test(t, func(t *testing.T) {
			server, f, tr, manager := start(t, arm, schedule.Schedule{Nodes: 3, Ended: 1, Tenants: []schedule.Tenant{{Name: tenant, Pods: 6, Hard: 20}}})
			server.Observe = func(_ model.Truth, r *model.Request, done bool) {
				if done && r.Resource == model.Pods && r.Verb == "delete" {
					deleted[arm]++
				}
			}
			endedPods := func() (n int) {
				server.Look(func(truth model.Truth) { n = podsOf(truth, ended) })
				return n
			}
			time.Sleep(time.Minute)
			stuck := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "stuck", Finalizers: []string{"example.com/kept"}}}
			stuck.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"none"}}}}},
			}}}
			server.Create(model.Pods, stuck)
			server.Delete(model.Pods, tenant, stuck.Name, nil)
			f.Do(schedule.Step{Action: schedule.Unprovable, For: length}, tr.After)
			tr.Do(schedule.Step{Action: schedule.EndPods, Target: tenant, N: 4})
			time.Sleep(length - time.Second)
			if arm == arms.Ours {
				require.Len(t, manager.Waits(), 1)
				require.Equal(t, 4, endedPods())
			}
			time.Sleep(5 * time.Second)
			require.LessOrEqual(t, endedPods(), 1, "once there are proofs again")
			require.Empty(t, manager.Waits())
		})
	}
	t.Logf("deletions: %v", deleted)
	require.Greater(t, deleted[arms.Stock], 80)
	require.LessOrEqual(t, deleted[arms.Ours], deleted[arms.Stock]+5)
}

// A pod that turns unready reaches its owner's status as soon as upstream's, and no proof is asked for it.
func TestUnreadyPodReachesTheStatus(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := schedule.Schedule{
				Nodes: 3, Settle: time.Minute, Owners: []schedule.Owner{{Kind: kind, Name: "owner", Replicas: 3}, {Kind: kind, Name: "neighbour", Replicas: 3}},
				Steps: append(flips("owner", time.Minute, 20), flips("neighbour", 64*time.Second, 20)...),
			}
			stock, ours := both(t, s)
			owner := validate.Owners(s)[0]
			require.GreaterOrEqual(t, len(stock.Untold[owner]), 10)
			require.InDelta(t, mean(stock.Untold[owner]).Seconds(), mean(ours.Untold[owner]).Seconds(), 0.05)
			for resource, n := range ours.Probes {
				require.LessOrEqual(t, n, 8, "proofs of %s, which only the start needs", resource)
			}
		})
	}
}

func mean(spans []validate.Span) (sum time.Duration) {
	for _, s := range spans {
		sum += s.For
	}
	return sum / time.Duration(max(1, len(spans)))
}

// One custom resource that cannot be listed is of no concern to a rollout, a replacement, or the ages of other caches.
func TestBrokenCustomResource(t *testing.T) {
	for _, monitor := range []bool{false, true} {
		s := schedule.Schedule{
			Nodes: 5, Monitor: monitor, Settle: time.Minute,
			Owners: []schedule.Owner{{Kind: "DaemonSet", Name: "daemons"}, {Kind: "ReplicaSet", Name: "replicas", Replicas: 3}},
			Steps:  []schedule.Step{{At: 40 * time.Second, Action: schedule.Broken, Target: "widgets", N: 30, For: 10 * time.Minute}},
		}
		for i := range 8 {
			at := time.Minute + time.Duration(i)*time.Minute
			s.Steps = append(s.Steps, schedule.Step{At: at, Action: schedule.Roll, Target: "daemons"}, schedule.Step{At: at, Action: schedule.DeletePod, Target: "replicas", N: i})
		}
		both(t, s)
	}
}

// A node whose clock is set back renews its lease with times that its cache has seen before: it lives.
func TestClockOfANodeIsSetBack(t *testing.T) {
	for _, far := range []time.Duration{-time.Minute, -5 * time.Minute, -time.Hour, time.Hour} {
		both(t, schedule.Schedule{
			Nodes: 3, Monitor: true, Settle: 3 * time.Minute, Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "replicas", Replicas: 3}},
			Steps: []schedule.Step{{At: time.Minute, Action: schedule.Clock, N: 1, Delay: far}, {At: 5 * time.Minute, Action: schedule.Clock, N: 1, Delay: -far}},
		})
	}
}

// A pod on a node that its DaemonSet does not select any more is deleted although the queue is slow and nodes change all
// the time: each reconcile comes more than 2 s after the last, and its view is older than a proof that it asks for.
func TestSlowQueueAndBusyNodes(t *testing.T) {
	const length = 3 * time.Minute
	s := schedule.Schedule{Nodes: 5, Settle: time.Minute, Steps: []schedule.Step{
		{At: time.Minute, Action: schedule.SlowWrites, Target: "daemonsets", Delay: 5 * time.Second, For: length},
		{At: time.Minute, Action: schedule.SlowReads, Target: "nodes", Delay: 300 * time.Millisecond, For: length},
		{At: time.Minute, Action: schedule.Busy, Target: "nodes", N: 20, For: length},
		{At: 90 * time.Second, Action: schedule.Relabel, Target: "owner", N: 1},
	}}
	for _, name := range []string{"owner", "a", "b", "c", "d", "e", "f"} {
		s.Owners = append(s.Owners, schedule.Owner{Kind: "DaemonSet", Name: name})
		for i := range 3 {
			s.Steps = append(s.Steps, schedule.Step{At: time.Minute, Action: schedule.Flap, Target: name, Delay: time.Duration(11+10*i) * 100 * time.Millisecond, For: length})
		}
	}
	// The writes fill the queue's workers, and chance decides whose they are: 13 to 24 of one owner, on either arm. Only
	// their sum can be compared.
	isOfOne := func(v validate.Violation) bool { return v.Rule == "requests" }
	stock, ours := bothBut(t, s, isOfOne)
	require.LessOrEqual(t, statusWrites(ours, validate.Owners(s)), statusWrites(stock, validate.Owners(s))+10)
	owner := validate.Owners(s)[0]
	require.Len(t, stock.Excess[owner], 1)
	require.Len(t, ours.Excess[owner], 1)
}

func statusWrites(r validate.Record, owners []model.Owner) (n int) {
	for _, owner := range owners {
		n += r.Requests[owner]["update daemonsets/status"]
	}
	return n
}
