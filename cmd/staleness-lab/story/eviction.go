// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/faultrig"
)

const (
	evictionPods       = 30
	evictionToleration = 10 * time.Second
	// evictionWindow is how long the hold goes on after the toleration ran out. Thirty evictions at the
	// client's default rate take under 5 s.
	evictionWindow = 15 * time.Second

	laterPods       = 5
	laterToleration = time.Second
	laterLimit      = 30 * time.Second
)

var eviction = Story{
	ID:    "a",
	Title: "a NoExecute taint is taken off a node while the nodes watch is held back; then the toleration runs out",
	Correct: "A correct KCM deletes no pod from a node whose taint is gone, and evicts from a tainted node " +
		"as ever once its cache is fresh.",
	Hurts: []controlplane.Arm{controlplane.ArmU0, controlplane.ArmU1},
	Run:   func(ctx context.Context, o Options) (Result, error) { return RunEviction(ctx, o) },
	Settings: func(Options) string {
		return fmt.Sprintf("1 node, %d pods with tolerationSeconds %d, nodes watch held until all are gone or %d s after that; KCM flags default",
			evictionPods, int(evictionToleration.Seconds()), int(evictionWindow.Seconds()))
	},
}

// EvictionResult is what happened to the pods of a node that was tainted and untainted.
type EvictionResult struct {
	KCM
	// Pods were on the node. Deletes are the deletions until the hold was released, each with the truth
	// about it; Running pods are left at the end.
	Pods    int
	Deletes []Delete
	Running int
	// Held is what the proxy kept back, and for how long. Late is how long the taint had been gone when
	// the toleration ran out.
	Held    faultproxy.Tally
	HeldFor time.Duration
	Late    time.Duration
	// LaterPods were put on the node after the release, and tainted; LaterEvicted were deleted for it.
	LaterPods, LaterEvicted int
}

// Unjustified counts the deletions that the node's true state did not call for.
func (r *EvictionResult) Unjustified() int {
	n := 0
	for _, d := range r.Deletes {
		if !d.Justified {
			n++
		}
	}
	return n
}

// Figures implements Result.
func (r *EvictionResult) Figures() []Figure {
	return []Figure{
		{Name: "pods deleted from the healthy node", Value: ratio(r.Unjustified(), r.Pods), Verdict: judge(r.Unjustified() > 0)},
		{Name: "pods still running at the end", Value: ratio(r.Running, r.Pods)},
		{Name: "pods evicted later for a real taint", Value: ratio(r.LaterEvicted, r.LaterPods), Verdict: judge(r.LaterEvicted < r.LaterPods)},
		{Name: "fault: node events held, for", Value: fmt.Sprintf("%d, %.0f s", r.Held.Frames, r.HeldFor.Seconds())},
		{Name: "fault: taint gone before they were due", Value: fmt.Sprintf("%.1f s", r.Late.Seconds())},
	}
}

// RunEviction runs the story.
func RunEviction(ctx context.Context, o Options) (_ *EvictionResult, err error) {
	ctx, scene, err := o.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scene.end(ctx)) }()
	e := &evictionRun{scene: scene, node: scene.rig.Cluster.Nodes().Names()[0],
		result: &EvictionResult{KCM: scene.subject, Pods: evictionPods, LaterPods: laterPods}}
	if err := e.fault(ctx); err != nil {
		return nil, err
	}
	if err := e.later(ctx); err != nil {
		return nil, err
	}
	if err := e.rig.SameKCM(ctx); err != nil {
		return nil, err
	}
	e.result.Running = e.truth.Running(e.pods)
	return e.result, nil
}

// evictionRun is the story under way.
type evictionRun struct {
	*scene
	node   string
	pods   []string
	result *EvictionResult
}

// fault taints the node, holds the news of the taint's end back, and lets the toleration run out.
func (e *evictionRun) fault(ctx context.Context) error {
	rig, nodes := e.rig, corev1.Resource("nodes")
	e.say("pods start", "%d on %s", evictionPods, e.node)
	var err error
	if e.pods, err = e.runPods(ctx, "victim", evictionPods, evictionToleration); err != nil {
		return err
	}
	rv, err := rig.Taint(ctx, e.node, labTaint)
	if err != nil {
		return err
	}
	// Counted from here, the eviction is due a little later than this says.
	due := time.Now().Add(evictionToleration)
	if err := rig.WaitTold(ctx, nodes, rv); err != nil {
		return err
	}
	hold, err := rig.Proxy.Inject(faultproxy.Target{Resource: nodes}, faultproxy.Hold{})
	if err != nil {
		return err
	}
	defer hold.Clear()
	if rv, err = rig.Untaint(ctx, e.node, labTaint); err != nil {
		return err
	}
	untainted := time.Now()
	e.result.Late = due.Sub(untainted)
	if e.result.Late <= 0 {
		return fmt.Errorf("the fault was not injected: the taint was removed %v too late", -e.result.Late)
	}
	err = faultrig.Wait(ctx, evictionToleration, "the proxy to hold the removal of the taint", func() (bool, error) {
		return rig.Sent(nodes, rv)
	})
	if err != nil {
		return err
	}

	end := due.Add(evictionWindow)
	err = e.watch(ctx, end, func() {
		e.say("taint removed, nodes watch held", "eviction due %s, %s pods deleted", since(due), ratio(e.truth.Going(e.pods), evictionPods))
	})
	if err != nil {
		return err
	}
	told, err := rig.Told(nodes, rv)
	if err != nil {
		return err
	}
	stats := hold.Stats()
	if told || stats.Touched() == 0 {
		return fmt.Errorf("the fault was not injected: %d node events held, kube-controller-manager has seen the removal of the taint: %t",
			stats.Held.Frames, told)
	}
	if e.result.Deletes, err = e.truth.Deletes(rig.AuditLog()); err != nil {
		return err
	}
	e.result.Held, e.result.HeldFor = stats.Held, time.Since(stats.Since)
	hold.Clear()
	e.say("nodes watch released", "")
	return rig.WaitTold(ctx, nodes, rv)
}

// watch waits until all pods are deleted or the window ends, reporting once a second.
func (e *evictionRun) watch(ctx context.Context, end time.Time, report func()) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for time.Now().Before(end) && e.truth.Going(e.pods) < len(e.pods) {
		report()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
	return nil
}

// later shows whether pods are still evicted when they should be: doing nothing would be no cure.
func (e *evictionRun) later(ctx context.Context) error {
	pods, err := e.runPods(ctx, "later", laterPods, laterToleration)
	if err != nil {
		return err
	}
	if _, err := e.rig.Taint(ctx, e.node, labTaint); err != nil {
		return err
	}
	e.say("nodes watch released, node tainted again", "%d more pods to evict", laterPods)
	limit, cancel := context.WithTimeout(ctx, laterLimit)
	defer cancel()
	err = faultrig.Wait(limit, laterLimit, "the evictions", func() (bool, error) { return e.truth.Going(pods) == laterPods, nil })
	if err != nil && ctx.Err() != nil {
		return err
	}
	deletes, err := e.truth.Deletes(e.rig.AuditLog())
	if err != nil {
		return err
	}
	for _, d := range deletes {
		if d.Justified && slices.Contains(pods, d.Pod) {
			e.result.LaterEvicted++
		}
	}
	_, err = e.rig.Untaint(ctx, e.node, labTaint)
	return err
}

func since(t time.Time) string {
	if d := time.Until(t); d > 0 {
		return fmt.Sprintf("in %.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s ago", time.Since(t).Seconds())
}
