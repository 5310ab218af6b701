// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package composition tests that upstream's real, patched controllers together with this project's tracker, prover,
// monitor, breakers and guards are in no history worse than stock upstream: both run the same history, drawn from a
// seed, against a model of the apiserver, on virtual time.
package composition

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/faults"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

const (
	// ageEvery is how often the published ages are looked at, from warm on, and only ages of caches that no fault
	// touched for settled.
	ageEvery = 5 * time.Second
	warm     = 30 * time.Second
	settled  = 30 * time.Second
)

// flagsFor are those that a schedule needs. load is what autoscalers read.
func flagsFor(s schedule.Schedule, load metrics.MetricsClient) arms.Flags {
	return arms.Flags{
		Monitor: s.Monitor, QPS: s.QPS, Guards: s.Guards(), Ended: s.Ended, Deployments: s.Deployments(), CronJobs: len(s.CronJobs) > 0, Slices: len(s.Services) > 0, Endpoints: s.Endpoints, Finalizers: s.Finalizers,
		Collector: len(s.Families) > 0, Claims: len(s.Claimers) > 0, DeviceTaints: s.DeviceTaints, Volumes: len(s.Volumes) > 0, Load: load,
	}
}

// run runs a schedule on one arm. log, unless nil, is told what the components log.
func run(t *testing.T, arm arms.Arm, s schedule.Schedule, log func(string)) (record validate.Record) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		logger := logr.Discard()
		if log != nil {
			began := time.Now()
			logger = funcr.New(func(_, args string) { log(fmt.Sprintf("%8.3f %s %s", time.Since(began).Seconds(), arm, args)) }, funcr.Options{Verbosity: 4})
		}
		ctx := klog.NewContext(context.Background(), logger)
		server, judge := model.New(), validate.New(s)
		f := faults.New(server)
		var tr *traffic.Traffic
		server.Fate, server.Observe = f.Fate, func(truth model.Truth, r *model.Request, done bool) {
			if log != nil && done && r.Write() {
				logger.Info(r.String())
			}
			judge.Observe(truth, r, done)
		}
		server.Changed = judge.Changed
		tr = traffic.Start(server, s)
		server.Changed = func(truth model.Truth, r *model.Resource, old, now model.Object) {
			judge.Changed(truth, r, old, now)
			tr.Changed(old, now)
		}
		flags := flagsFor(s, tr.Measured(judge.Asked))
		turn := make(chan struct{}, 1) // taken while one manager ends and another begins; time goes on for who waits for it, as it would not for a mutex
		var manager *arms.Manager
		start := func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			if manager != nil {
				manager.Stop()
			}
			var err error
			if manager, err = arms.Start(ctx, arm, server, flags); err != nil {
				panic(err)
			}
		}
		start()
		for i, step := range s.Steps {
			// Timers of one instant go off in any order, and the arms are to meet the same one.
			tr.After(step.At+time.Duration(i)*time.Microsecond, func() {
				if log != nil {
					logger.Info(step.String())
				}
				if step.Action == schedule.Restart {
					start()
				} else if !tr.Do(step) && !f.Do(step, tr.After) {
					panic(step.Action)
				}
			})
		}
		end := s.End() + s.Settle
		for at := warm; at < end && arm == arms.Ours && s.Monitor; at += ageEvery {
			tr.After(at, func() {
				turn <- struct{}{}
				defer func() { <-turn }()
				for _, c := range manager.Wiring.Caches() {
					// The others are asked as often as there are requests to spare.
					if name := c.Resource.Resource; c.Protected && !s.TouchedAt(name, at, settled) {
						judge.Age(name, c.Age, !c.Proven.IsZero())
					}
				}
			})
		}
		time.Sleep(end)
		turn <- struct{}{}
		var waits []string
		for _, w := range manager.Waits() {
			waits = append(waits, fmt.Sprintf("%s %s waits for %s: %s", w.Controller, w.Owner, w.For, w.Why))
		}
		server.Look(judge.Digest)
		tr.End()
		record = judge.End(waits)
		manager.End()
	})
	return record
}

// violations runs a schedule on both arms and returns by which rules ours is worse. On virtual time, too, chance decides who gets the
// worker of a busy queue, and a count or a latency of one run says little: a rule counts if two of three runs break it.
func violations(t *testing.T, s schedule.Schedule) []validate.Violation {
	t.Helper()
	return violationsAnd(t, s, nil)
}

// violationsAnd is violations, and adds the first of the runs to the tail.
func violationsAnd(t *testing.T, s schedule.Schedule, tail *validate.Tail) []validate.Violation {
	t.Helper()
	compare := func() []validate.Violation {
		stock, ours := run(t, arms.Stock, s, nil), run(t, arms.Ours, s, nil)
		if tail != nil {
			tail.Add(s, stock, ours)
			tail = nil
		}
		return validate.Compare(s, stock, ours)
	}
	return twoOfThree(compare)
}

// twoOfThree returns what a comparison has found if it does so in two of three runs.
func twoOfThree(compare func() []validate.Violation) []validate.Violation {
	found := compare()
	for runs := 1; len(found) > 0 && runs < 3; runs++ {
		if again := compare(); same(found, again) {
			return again
		}
	}
	return nil
}

// A run may end while a request is under way that nobody can cancel.
func TestRunEndsWhileAnEventIsSent(t *testing.T) {
	s := schedule.Schedule{Nodes: 2, Settle: time.Second, Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "owner", Replicas: 1}}, Steps: []schedule.Step{
		{At: 10 * time.Second, Action: schedule.SlowWrites, Target: "events", Delay: 30 * time.Second, For: 20 * time.Second},
		{At: 20 * time.Second, Action: schedule.Scale, Target: "owner", N: 5},
	}}
	for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
		run(t, arm, s, nil)
	}
}

// One manager may end and another begin while the ages of caches are due to be looked at.
func TestRestartWhileAgesAreDue(t *testing.T) {
	run(t, arms.Ours, schedule.Schedule{Nodes: 2, Monitor: true, Settle: 10 * time.Second, Steps: []schedule.Step{
		{At: 2*warm - time.Millisecond, Action: schedule.Restart}, {At: 2*warm + ageEvery - 10*time.Millisecond, Action: schedule.Restart},
	}}, nil)
}
