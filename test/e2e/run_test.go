// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

const (
	// polling is how often conditions are looked at.
	polling = 50 * time.Millisecond
	// stepLimit bounds what is promised of a step that no fault delays. What nothing is promised of has patience,
	// because other specs and other work are on the machine.
	stepLimit = 30 * time.Second
	patience  = 2 * time.Minute
	// slowMachine is by how much the limit of a whole spec, which judges nothing, is longer than what it may take on the machine that it
	// was written on.
	slowMachine = 3
	// defaultSettle is how long a healed cluster must stay in its end state in the ordinary run. The
	// long run waits for 60 s: SETTLE=60s.
	defaultSettle  = 5 * time.Second
	settleVariable = "SETTLE"
)

func settle() time.Duration {
	if d, err := time.ParseDuration(os.Getenv(settleVariable)); err == nil {
		return d
	}
	return defaultSettle
}

// run is one scenario on one arm: the rig, and what has been found out.
type run struct {
	*rig.Rig
	idle       bool // of the scenario
	figures    []figure
	violations []oracle.Violation
	// unproven says what is missing for the run to mean anything, unwaited that no owner ever waited, which a run
	// without a protection may be about.
	unproven, unwaited []string
	// faults are those that inject has injected.
	faults []*faultproxy.Fault
	// kcmArgs are for who takes a turn.
	kcmArgs []string
	// deaths are the nodes that may be marked so.
	deaths oracle.Deaths
	// judges say which deletions are right, besides those of DaemonSets.
	judges []oracle.Judge
}

// figure notes a figure for the table.
func (r *run) figure(name, format string, args ...any) {
	r.figures = append(r.figures, figure{name, fmt.Sprintf(format, args...)})
}

// violate adds to what went wrong.
func (r *run) violate(v ...oracle.Violation) { r.violations = append(r.violations, v...) }

// hold injects a fault and fails the spec if that is impossible.
func (r *run) inject(target faultproxy.Target, effect faultproxy.Effect) *faultproxy.Fault {
	ginkgo.GinkgoHelper()
	fault, err := r.Proxy.Inject(target, effect)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.faults = append(r.faults, fault)
	return fault
}

// proves is V: the fault touched at least so many changes and requests, over at least this time. Call it when the fault has done its
// work.
func (r *run) proves(fault *faultproxy.Fault, changes int, lasted time.Duration) {
	s := fault.Stats()
	end := s.Until
	if end.IsZero() {
		end = time.Now()
	}
	touched := s.Touched()
	r.figure("V "+s.Effect+" "+s.Resource.Resource, "%d changes and requests, %.1fs", touched, end.Sub(s.Since).Seconds())
	if touched < changes || end.Sub(s.Since) < lasted {
		r.unproven = append(r.unproven, fmt.Sprintf("%s of %s touched %d changes and requests in %v; want %d in %v",
			s.Effect, s.Resource, touched, end.Sub(s.Since), changes, lasted))
	}
}

// eventually waits for a condition that no arm may miss.
func (r *run) eventually(ctx context.Context, what string, done func() (bool, error)) {
	ginkgo.GinkgoHelper()
	gomega.Expect(rig.Wait(ctx, patience, what, done)).To(gomega.Succeed())
}

// daemonSetDone returns the condition that a DaemonSet is in its end state on so many nodes.
func (r *run) daemonSetDone(set types.UID, nodes int) func() error {
	return func() error { return oracle.DaemonSetDone(r.Truth, set, nodes) }
}

// converges is L: the condition holds within the bound, and goes on holding for the settle time. It returns
// how long that took; if it never came, a violation is noted.
func (r *run) converges(ctx context.Context, what string, bound time.Duration, done func() error) time.Duration {
	began := time.Now()
	violation := oracle.Violation{Oracle: "L", Rule: ruleEnd, Object: what}
	var last error
	err := rig.Wait(ctx, bound, what, func() (bool, error) {
		last = done()
		return last == nil, nil
	})
	took := time.Since(began)
	if err != nil {
		violation.Time, violation.Detail = time.Now(), fmt.Sprintf("%v; %v", err, last)
		r.violate(violation)
		return took
	}
	for end := time.Now().Add(settle()); time.Now().Before(end); {
		if last = done(); last != nil {
			violation.Rule, violation.Time, violation.Detail = ruleStay, time.Now(), last.Error()
			r.violate(violation)
			return took
		}
		select {
		case <-time.After(polling):
		case <-ctx.Done():
			return took
		}
	}
	return took
}

// The rules of L.
const (
	ruleEnd    = "end state not reached"
	ruleStay   = "end state left again"
	ruleDigest = "other number of creates and deletes"
	ruleStep   = "a step that no arm may miss was missed"
)

// digest compares what happened to a DaemonSet's objects with the fault-free run of the same workload.
func (r *run) digest(name string, set types.UID, want oracle.Digest) {
	if got := oracle.DigestOf(r.Truth, set); got != want {
		r.violate(oracle.Violation{
			Oracle: "L", Rule: ruleDigest, Object: name, Time: time.Now(), Detail: fmt.Sprintf("%+v, without faults %+v", got, want),
		})
	}
}

// waits are the metrics that say how often DaemonSets waited or put a deletion off, and how many still wait.
var waits = regexp.MustCompile(`(?m)^stale_controller_(waits_total|parked_owners|unproven_actions_total)\{controller="daemonset".*\} (\S+)$`)

// nobodyParked is the part of L that only this project's metrics show: no owner is left waiting.
func (r *run) nobodyParked(ctx context.Context) {
	ginkgo.GinkgoHelper()
	page, err := r.KCM.Get(ctx, "/metrics")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	sum := map[string]float64{}
	for _, m := range waits.FindAllStringSubmatch(string(page), -1) {
		value, err := strconv.ParseFloat(m[2], 64)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		sum[m[1]] += value
	}
	r.figure("waits, still parked", "%.0f, %.0f", sum["waits_total"], sum["parked_owners"])
	if sum["parked_owners"] > 0 {
		r.violate(oracle.Violation{Oracle: "L", Rule: "owner left parked", Time: time.Now(), Detail: fmt.Sprint(sum["parked_owners"])})
	}
	if sum["waits_total"]+sum["unproven_actions_total"] == 0 && !r.idle {
		r.unwaited = append(r.unwaited, "no DaemonSet ever waited for its cache")
	}
}

// judge completes the truth and asks the standing oracles.
func (r *run) judge(ctx context.Context) {
	ginkgo.GinkgoHelper()
	gomega.Expect(r.standing(ctx)).To(gomega.Succeed())
	writes, err := r.Writes()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.violate(oracle.TooLate(r.Truth, writes)...)
	if r.Arm == rig.P {
		r.nobodyParked(ctx)
	}
}

// countProofs notes how often Fresh KCM has asked how fresh its caches are.
func (r *run) countProofs() {
	if load, err := r.Proofs(); err == nil && load.All > 0 {
		r.figure("proofs and probes", "%d; once started %.2f a second in %.0f s", load.All, load.PerSecond(), load.Over.Seconds())
	}
}

// standing completes the truth and asks the oracles that hold in every run.
func (r *run) standing(ctx context.Context) error {
	if err := r.SameKCM(ctx); err != nil {
		return err
	}
	if err := r.Truth.SyncAll(ctx); err != nil {
		return err
	}
	writes, err := r.Writes()
	if err != nil {
		return err
	}
	s1 := oracle.Surplus(r.Truth)
	s2 := oracle.Unjustified(r.Truth, writes, r.deaths, append(r.judges, oracle.DaemonSetDeletes)...)
	s3 := oracle.BehindOwnWrites(r.Truth, writes)
	r.figure("S1 surplus pods", "%d", len(s1))
	r.figure("S2 unjustified", "%d", len(s2))
	unasked := oracle.Unasked(r.Truth, writes)
	r.figure("S2 truth late by at most; deletions nobody asked for", "%v; %d", oracle.Lag(r.Truth, writes).Round(time.Millisecond), len(unasked))
	r.figure("S3 behind own writes", "%d", len(s3))
	r.violate(s1...)
	r.violate(s2...)
	r.violate(unasked...)
	r.violate(s3...)
	if r.Arm != rig.P {
		return nil
	}
	page, err := r.KCM.Get(ctx, "/metrics")
	if err != nil {
		return err
	}
	for _, m := range refusedDeletions.FindAllStringSubmatch(string(page), -1) {
		if m[2] == "0" {
			continue
		}
		r.violate(oracle.Violation{Oracle: "I", Rule: "deletion without what its rule promises", Object: m[1], Time: time.Now(), Detail: m[2]})
	}
	return nil
}

// refusedDeletions is the metric of deletions that were not sent because they lacked what package inventory promises.
var refusedDeletions = regexp.MustCompile(`(?m)^stale_controller_refused_deletions_total\{client="(.*)"\} (\S+)$`)
