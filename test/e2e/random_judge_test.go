// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

// bystanderEvery is how often a random run makes a namespace, which no fault of a schedule touches.
const bystanderEvery = 2 * time.Second

// played is what a schedule came to on one arm.
type played struct {
	schedule   schedule.Schedule
	violations []oracle.Violation
	// unproven says what is missing for the run to mean anything.
	unproven []string
	state    []string
	beside   []time.Duration
	lag      time.Duration
}

// outcome takes it when all is healed, and judges what needs no other run: that the dead were marked in time.
func (p *player) outcome(ctx context.Context, s schedule.Schedule) (played, error) {
	writes, err := p.Writes()
	if err != nil {
		return played{}, err
	}
	p.passed(ctx)
	p.mu.Lock()
	blind, down := slices.Concat(p.blind, p.down), slices.Clone(p.down)
	p.mu.Unlock()
	o := played{schedule: s, state: oracle.EndState(p.Truth), beside: oracle.Bystanders(writes, down...), lag: oracle.Lag(p.Truth, writes)}
	bound := p.deaths.Bound(p.slowest) + o.lag
	late := oracle.Late(p.Truth, bound, time.Now(), blind...)
	p.violate(late...)
	p.violate(oracle.TooLate(p.Truth, writes)...)
	p.figure("dead nodes marked later than", "%v: %d", rounded(bound), len(late))
	p.figure("F untouched namespaces, p50, p99", "%d, %v, %v", len(o.beside), rounded(oracle.Percentile(o.beside, 50)), rounded(oracle.Percentile(o.beside, 99)))
	o.violations, o.unproven = p.violations, p.worked(s, writes)
	return o, nil
}

// worked is V: faults of the schedule touched something, and the controllers had more to do than there were steps.
func (p *player) worked(s schedule.Schedule, writes []controlplane.AuditEvent) (unproven []string) {
	met := 0
	for _, fault := range p.run.faults {
		if stats := fault.Stats(); stats.Touched() > 0 || stats.Streams > 0 {
			met++
		}
	}
	wrote := 0
	for i := range writes {
		if oracle.By(&writes[i]) != "" {
			wrote++
		}
	}
	deleted := 0
	for _, n := range oracle.DeletedBy(p.Truth, writes) {
		deleted += n
	}
	p.figure("V faults that met something, writes, deletions judged", "%d of %d, %d, %d", met, len(p.run.faults), wrote, deleted)
	if len(p.run.faults) > 0 && 2*met < len(p.run.faults) {
		unproven = append(unproven, fmt.Sprintf("%d of %d faults met no stream and no request", len(p.run.faults)-met, len(p.run.faults)))
	}
	if wrote <= len(s.Steps) || deleted == 0 {
		unproven = append(unproven, fmt.Sprintf("the controllers wrote %d times and deleted %d pods in %d steps", wrote, deleted, len(s.Steps)))
	}
	return unproven
}

// besideStock plays the same schedule on stock, without its faults and restarts, and returns where ours came to something else, and
// what became slower though no fault touches it (oracle F): in the median more than twice, and more than by what the truth of the two runs was late,
// which the same machine made it.
func (o played) besideStock(ctx context.Context) ([]oracle.Violation, error) {
	quiet := o.schedule
	quiet.Steps = slices.DeleteFunc(slices.Clone(quiet.Steps), func(step schedule.Step) bool {
		return step.Action == schedule.Fault || step.Action == schedule.RestartKCM
	})
	stock, err := play(ctx, rig.U1, quiet)
	if err != nil {
		return nil, fmt.Errorf("the same on stock: %w", err)
	}
	for _, v := range stock.violations {
		say("stock, without faults: " + v.String())
	}
	var out []oracle.Violation
	// Stock that did not get there itself is no reference.
	if reached := !slices.ContainsFunc(stock.violations, func(v oracle.Violation) bool { return v.Oracle == "L" }); reached {
		if unlike := oracle.Unlike(o.state, stock.state); len(unlike) > 0 {
			out = append(out, oracle.Violation{Oracle: "L", Rule: ruleState, Object: "end state", Time: time.Now(), Detail: strings.Join(unlike, "; ")})
		}
	}
	// Of so few the slowest says more of the machine than of the fault: it is in the table.
	ours, theirs := oracle.Percentile(o.beside, 50), oracle.Percentile(stock.beside, 50)
	if ours > 2*theirs+max(o.lag, stock.lag) {
		out = append(out, oracle.Violation{Oracle: "F", Rule: oracle.RuleSlower, Object: "ServiceAccounts of new namespaces", Time: time.Now(),
			Detail: fmt.Sprintf("p50 %v, on stock without faults %v", ours, theirs)})
	}
	return out, nil
}

// ruleState is broken by an end state that is not that of stock without faults.
const ruleState = "end state other than stock's"

// blinds says whether nobody can know that a node is dead while a fault lasts: what says so, leases, is refused, or what there is of
// nodes may be missing.
func blinds(step schedule.Step) bool {
	switch step.Resource {
	case "leases.coordination.k8s.io":
		return step.Effect == schedule.TooManyRequests || step.Effect == schedule.TooLargeRV
	case "nodes":
		return true
	}
	return false
}

// restart kills kube-controller-manager and starts it again. What it knows of nodes begins with its first pass over them.
func (p *player) restart(ctx context.Context) error {
	p.passed(ctx)
	from := time.Now()
	err := p.KCM.Kill()
	if err == nil {
		err = p.KCM.Restart(ctx)
	}
	p.Adopt(p.KCM)
	p.mu.Lock()
	p.down = append(p.down, oracle.Period{From: from, To: from.Add(time.Since(from))})
	i := len(p.down) - 1
	p.mu.Unlock()
	go func() {
		defer ginkgo.GinkgoRecover()
		_ = rig.Wait(ctx, healLimit, "the first pass over the nodes", func() (bool, error) {
			p.mu.Lock()
			p.down[i].To = time.Now()
			p.mu.Unlock()
			text, err := p.KCM.Get(ctx, "/metrics")
			return err == nil && sumOf(string(text), allNodesDuration+"_count") > 0, nil
		})
	}()
	return err
}

const allNodesDuration = "node_collector_update_all_nodes_health_duration_seconds"

// passed notes how long a pass over the nodes has taken at most, by the process that runs.
func (p *player) passed(ctx context.Context) {
	text, err := p.KCM.Get(ctx, "/metrics")
	if err != nil {
		return
	}
	p.slowest = max(p.slowest, longest(string(text), allNodesDuration))
}

// longest returns the upper bound of the highest bucket of a histogram that something is in.
func longest(page, metric string) time.Duration {
	all := sumOf(page, metric+"_count")
	least := math.Inf(1)
	for lines := bufio.NewScanner(strings.NewReader(page)); lines.Scan(); {
		label, value, ok := strings.Cut(strings.TrimPrefix(lines.Text(), metric+"_bucket{le=\""), "\"} ")
		if !ok || !strings.HasPrefix(lines.Text(), metric+"_bucket") {
			continue
		}
		le, err1 := strconv.ParseFloat(label, 64)
		n, err2 := strconv.ParseFloat(value, 64)
		if err1 == nil && err2 == nil && n >= all {
			least = min(least, le)
		}
	}
	if all == 0 || math.IsInf(least, 1) {
		return 0
	}
	return time.Duration(least * float64(time.Second))
}

// bystanders makes namespaces until it is stopped.
func (p *player) bystanders(ctx context.Context) (stop func()) {
	stopMaking := every(ctx, bystanderEvery, func(ctx context.Context, i int) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("bystander-", i)}}
		_, err := p.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		return err
	})
	stopped := false
	return func() {
		if !stopped {
			stopped = true
			stopMaking()
		}
	}
}
