// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// restarted has a kube-controller-manager begin on an apiserver that lags behind what the one before it saw and did.
type restarted struct {
	schedule.Schedule
	// lags is the resource, after the first minute and for another one, unless long says for how long.
	lags string
	long time.Duration
	// changes are seen by the one before.
	changes []schedule.Step
	// harmed tells what stock does then. It is nil for node lifecycle, which reads the leases from the server on stock, too.
	harmed func(validate.Record) bool
}

// restartAt is when the second one begins.
const restartAt = 80 * time.Second

// breaks says that something was done for which the server's state gave no reason.
func breaks(rule string) func(validate.Record) bool {
	return func(r validate.Record) bool {
		for _, v := range r.Unjustified {
			if v.Rule == rule {
				return true
			}
		}
		return false
	}
}

// podsMade says that more pods were made than the owner ever asked for.
func podsMade(kind string, most int) func(validate.Record) bool {
	return func(r validate.Record) bool {
		for owner, requests := range r.Requests {
			if owner.Kind == kind && requests["create pods"] > most {
				return true
			}
		}
		return false
	}
}

// restarts are histories of controllers that do harm on a cache of before the restart.
func restarts() map[string]restarted {
	owner := func(kind string) schedule.Schedule {
		return schedule.Schedule{Owners: []schedule.Owner{{Kind: kind, Name: "owner", Replicas: 3}}}
	}
	changed := func(s schedule.Schedule, change func(*schedule.Schedule)) schedule.Schedule {
		change(&s)
		return s
	}
	step := func(at time.Duration, action schedule.Action, target string, n int) schedule.Step {
		return schedule.Step{At: at, Action: action, Target: target, N: n}
	}
	raised := []schedule.Step{step(62*time.Second, schedule.Scale, "owner", 5)}
	back := func(action schedule.Action, target string, n int) schedule.Step {
		return schedule.Step{At: 40 * time.Second, Action: action, Target: target, N: n, For: 22 * time.Second}
	}
	return map[string]restarted{
		"ReplicaSet, spec":            {Schedule: owner("ReplicaSet"), lags: "replicasets", changes: raised, harmed: breaks("deletion")},
		"ReplicaSet, pods":            {Schedule: owner("ReplicaSet"), lags: "pods", changes: raised, harmed: podsMade("ReplicaSet", 5)},
		"ReplicationController, spec": {Schedule: owner("ReplicationController"), lags: "replicationcontrollers", changes: raised, harmed: breaks("deletion")},
		"ReplicationController, pods": {Schedule: owner("ReplicationController"), lags: "pods", changes: raised, harmed: podsMade("ReplicationController", 5)},
		"StatefulSet, spec":           {Schedule: owner("StatefulSet"), lags: "statefulsets", changes: raised, harmed: breaks("deletion")},
		"Job, spec":                   {Schedule: owner("Job"), lags: "jobs", changes: raised, harmed: breaks("deletion")},
		"DaemonSet, nodes":            {Schedule: owner("DaemonSet"), lags: "nodes", changes: []schedule.Step{back(schedule.Relabel, "owner", 1)}, harmed: breaks("deletion")},
		"DaemonSet, pods":             {Schedule: owner("DaemonSet"), lags: "pods", changes: []schedule.Step{back(schedule.Relabel, "owner", 1)}, harmed: podsMade("DaemonSet", 4)},
		"Deployment, pods": {Schedule: schedule.Schedule{Owners: []schedule.Owner{{Kind: "Deployment", Name: "owner", Recreate: true}}}, lags: "pods",
			changes: []schedule.Step{step(62*time.Second, schedule.Scale, "owner", 4), step(81*time.Second, schedule.Roll, "owner", 0)}, harmed: breaks("revisions")},
		"CronJob, spec": {Schedule: schedule.Schedule{CronJobs: []schedule.CronJob{{Name: "cronjob", Policy: "Allow"}}}, lags: "cronjobs",
			changes: []schedule.Step{{At: 65 * time.Second, Action: schedule.Suspend, Target: "cronjob", For: 3 * time.Minute}}, harmed: breaks("run")},
		"taint eviction, nodes":  {Schedule: owner("ReplicaSet"), lags: "nodes", changes: []schedule.Step{back(schedule.Taint, "", 1), step(65*time.Second, schedule.Scale, "owner", 9)}, harmed: breaks("eviction")},
		"node lifecycle, leases": {Schedule: owner("ReplicaSet"), lags: "leases", long: 3 * time.Minute},
		"disruption, pods": {Schedule: changed(owner("ReplicaSet"), func(s *schedule.Schedule) { s.Budgets = []schedule.Budget{{Over: "owner", MinAvailable: 2}} }), lags: "pods",
			changes: []schedule.Step{{At: 62 * time.Second, Action: schedule.Unready, Target: "owner", For: 2 * time.Minute}}, harmed: func(r validate.Record) bool {
				return slices.ContainsFunc(slices.Collect(maps.Values(r.Overdone)), func(spans []validate.Span) bool { return longest(spans) > 20*time.Second })
			}},
		"resource claims, pods": {Schedule: schedule.Schedule{Claimers: []schedule.Claimer{{Name: "claimer", Shared: []int{0}}}}, lags: "pods",
			changes: []schedule.Step{step(55*time.Second, schedule.EndClaimer, "claimer", 0), step(66*time.Second, schedule.RemakeClaimer, "claimer", 0)}, harmed: breaks(validate.Released)},
		"garbage collector, dependents": {Schedule: schedule.Schedule{Families: []schedule.Family{{Kind: "ReplicaSet", Name: "family", Replicas: 2, ConfigMaps: 1, Widgets: 1}}}, lags: "configmaps",
			changes: []schedule.Step{step(62*time.Second, schedule.AddDependent, "family", 0), step(90*time.Second, schedule.RemoveOwner, "family", 2)}, harmed: breaks(validate.Orphaned)},
		"autoscaler, pods": {Schedule: schedule.Schedule{Autoscalers: []schedule.Autoscaler{{Name: "loaded", Kind: "Deployment", Metric: schedule.ByValue, Least: 1, Most: 20, Replicas: 3, Load: 3000, Late: 20 * time.Second}}}, lags: "pods",
			changes: []schedule.Step{step(46*time.Second, schedule.SetLoad, "loaded", 10000), step(76*time.Second, schedule.SetLoad, "loaded", 13000)}, harmed: breaks(validate.Lowered)},
		"endpoint slices, nodes": {Schedule: changed(owner("ReplicaSet"), func(s *schedule.Schedule) {
			s.LateNodes, s.Services = 2, []schedule.Service{{Name: "service", Over: "owner"}}
		}), lags: "nodes",
			changes: []schedule.Step{step(61*time.Second, schedule.NodeComes, "", 1), step(61*time.Second, schedule.NodeComes, "", 2), step(63*time.Second, schedule.Scale, "owner", 9)},
			harmed: func(r validate.Record) bool {
				return longest(r.Missing[validate.ServiceOwner("service")]) > 20*time.Second
			}},
	}
}

// A kube-controller-manager that is restarted comes to an apiserver that lags behind what the one before it saw and did. On stock each controller acts on what
// the first list brings. On ours those that make pods begin when their caches are proven as new as the start, and the others prove what they act on besides.
//
//conformance:kep-5647 Risks and Mitigations: after a restart a controller sees a consistent world: most wait until their caches are proven
func TestRestartOnAnAPIServerThatLags(t *testing.T) {
	for name, r := range restarts() {
		t.Run(name, func(t *testing.T) {
			s := r.Schedule
			s.Nodes, s.Settle = 3, 3*time.Minute
			s.Steps = append([]schedule.Step{{At: time.Minute, Action: schedule.Lag, Target: r.lags, For: max(time.Minute, r.long)}, {At: restartAt, Action: schedule.Restart}}, r.changes...)
			stock, ours := both(t, s)
			if r.harmed != nil {
				require.True(t, r.harmed(stock), "stock")
				require.False(t, r.harmed(ours), "ours")
			}
			require.Empty(t, ours.Unjustified)
		})
	}
}
