// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// Nothing is wrong: leases are busy, most resources quiet, or all that a cluster does goes on; etcd tells of its
// progress every 10 min, its default. The figures are those of B8.
var (
	_ = describe(undisturbed("quiet", calm, ordinary, nil))
	_ = describe(undisturbed("quiet", longCalm(), long, nil))
	_ = describe(undisturbed("busy", longCalm(), long, daysWork))
)

// undisturbed has nothing but work, unless that is nil, happen to a cluster.
//
//conformance:kep-5647 Feature Enablement and Rollback: staleness is looked for every 5 seconds
func undisturbed(name string, lasts time.Duration, label string, work func(ctx context.Context, r *run) (stop func())) scenario {
	return scenario{
		number: 15, title: fmt.Sprintf("%s cluster with a 10 min etcd progress interval, %v", name, lasts), label: label, gate: gates.MonitorInformerStaleness, mutants: ifOrdinary(label, without{"quiet-proof", ruleUnmeasured}),
		options: rig.Options{Record: []schema.GroupResource{truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions, truth.ReplicaSets}, Cluster: controlplane.Options{
			Nodes: controlplane.NodeOptions{Count: 20},
			Etcd:  controlplane.ProcessOptions{Args: []string{"--watch-progress-notify-interval=10m"}},
		}}, idle: true,
		timeout: lasts + max(4*time.Minute, lasts/4), // The audit log of an hour takes long to judge.
		run: func(ctx context.Context, r *run) {
			if r.Arm == rig.P {
				r.measured(ctx)
			}
			before, began := probeCost{}, time.Now()
			if r.Arm == rig.P {
				before = probeCosts(ctx, r)
			}
			if work != nil {
				stop := work(ctx, r)
				defer stop()
			}
			r.calm(ctx, lasts)
			if r.Arm != rig.P {
				return
			}
			after, minutes := probeCosts(ctx, r), time.Since(began).Minutes()
			r.figure("probes a minute: fences, lists, watches, bytes", "%.0f, %.0f, %.0f, %.0f", (after.fences-before.fences)/minutes, (after.lists-before.lists)/minutes, (after.watches-before.watches)/minutes, (after.bytes-before.bytes)/minutes)
			requests := after.requests() - before.requests()
			if perRequest := (after.bytes - before.bytes) / requests; perRequest > probeBytes {
				r.violate(oracle.Violation{Oracle: "G", Rule: "probes cost too much", Detail: fmt.Sprintf("%.0f bytes each", perRequest)})
			}
			if a := requests / minutes; work == nil && a > 60*probesPerSecond {
				r.violate(oracle.Violation{Oracle: "G", Rule: "too many probes", Detail: fmt.Sprintf("%.0f a minute", a)})
			}
			for resource, n := range after.byResource {
				if work != nil && resource == truth.ControllerRevisions.String() {
					// A rolling update may need proofs more often than the monitor takes fences.
					r.figure("reads for proofs, besides the monitor's", "%.0f", n-before.byResource[resource]-minutes*60/stalenessPeriod.Seconds())
					continue
				}
				// Two more for the ends of the time.
				if most := minutes*60/stalenessPeriod.Seconds() + 2; n-before.byResource[resource] > most {
					r.violate(oracle.Violation{Oracle: "G", Rule: "too many probes", Object: resource, Detail: fmt.Sprintf("%.0f in %.1f min", n-before.byResource[resource], minutes)})
				}
			}
		},
	}
}

// calm watches the page for a while in which nothing is amiss.
func (r *run) calm(ctx context.Context, lasts time.Duration) {
	if r.Arm != rig.P {
		time.Sleep(lasts)
		return
	}
	before := falseAlarms(ctx, r)
	var oldest, protected float64
	looks := 0
	seen := map[stalenessmonitor.State]int{}
	for end := time.Now().Add(lasts); time.Now().Before(end) && ctx.Err() == nil; {
		for _, c := range readStalenessz(ctx, r).Caches {
			looks++
			seen[c.State]++
			age := ptr.Deref(c.AgeSeconds, math.Inf(1))
			if oldest = max(oldest, age); c.Protected {
				protected = max(protected, age)
			}
			if !complete(c.State) {
				r.violate(oracle.Violation{Oracle: "M", Rule: "false alarm", Object: c.Resource, Time: time.Now(), Detail: fmt.Sprintf("%s: %s %s", c.State, c.Reason, c.Detail)})
			}
			if bound := quietBound.Seconds(); age > bound && (c.Protected || age > c.AskedEverySeconds+savedAgain.Seconds()+bound) {
				r.violate(oracle.Violation{Oracle: "M", Rule: "age above its bound", Object: c.Resource, Time: time.Now(), Detail: fmt.Sprintf("%.1fs (%s)", age, c.State)})
			}
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
		}
	}
	if alarms := falseAlarms(ctx, r) - before; alarms > 0 {
		r.violate(oracle.Violation{Oracle: "M", Rule: "false alarm", Time: time.Now(), Detail: fmt.Sprintf("%.0f changes of state in %v", alarms, lasts)})
	}
	r.figure("oldest age published: protected, all; looks", "%.1fs, %.1fs; %d", protected, oldest, looks)
	r.figure("states seen", "%v", seen)
}
