// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/faultrig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	evictionPods       = 30
	evictionToleration = 10 * time.Second
	// evictionWindow is how long the hold goes on after the toleration ran out. Thirty evictions at the
	// client's default rate take under 5 s.
	evictionWindow = 15 * time.Second

	// victims and later are the two groups of pods.
	victims, later = "victim", "later"

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
	// Pods were on the node. Unjustified of them were deleted until the hold was released though the node's true state did not
	// call for it; Running pods are left at the end.
	Pods, Unjustified, Running int
	// Held is what the proxy kept back, and for how long. Late is how long the taint had been gone when
	// the toleration ran out.
	Held    faultproxy.Tally
	HeldFor time.Duration
	Late    time.Duration
	// LaterPods were put on the node after the release, and tainted; LaterEvicted were deleted for it.
	LaterPods, LaterEvicted int
}

// Figures implements Result.
func (r *EvictionResult) Figures() []Figure {
	return []Figure{
		{Name: "pods deleted from the healthy node", Value: ratio(r.Unjustified, r.Pods), Outcome: judge(r.Unjustified > 0)},
		{Name: "pods still running at the end", Value: ratio(r.Running, r.Pods)},
		{Name: "pods evicted later for a real taint", Value: ratio(r.LaterEvicted, r.LaterPods), Outcome: judge(r.LaterEvicted < r.LaterPods)},
		{Name: "fault: node events held, for", Value: fmt.Sprintf("%d, %.0f s", r.Held.Frames, r.HeldFor.Seconds())},
		{Name: "fault: taint gone before they were due", Value: fmt.Sprintf("%.1f s", r.Late.Seconds())},
	}
}

// RunEviction runs the story.
func RunEviction(ctx context.Context, o Options) (_ *EvictionResult, err error) {
	scene, err := o.begin(ctx, 1)
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
	e.result.Running = running(e.truth, victims)
	return e.result, nil
}

// evictionRun is the story under way.
type evictionRun struct {
	*scene
	node   string
	result *EvictionResult
}

// fault taints the node, holds the news of the taint's end back, and lets the toleration run out.
func (e *evictionRun) fault(ctx context.Context) error {
	rig, nodes := e.rig, truth.Nodes
	e.say("pods start", "%d on %s", evictionPods, e.node)
	if err := e.runPods(ctx, victims, evictionPods, evictionToleration); err != nil {
		return err
	}
	rv, err := workload.SetTaints(ctx, rig.Client, e.node, workload.Taint)
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
	if rv, err = workload.SetTaints(ctx, rig.Client, e.node); err != nil {
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
	// The truth is on a path without the fault, or it would lack this, too.
	removed, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return err
	}
	err = faultrig.Wait(ctx, evictionToleration, "the truth recorder to see the removal of the taint", func() (bool, error) {
		node, ok := e.truth.Find(truth.Nodes, "", e.node, truth.Latest)
		return ok && node.RV >= removed, nil
	})
	if err != nil {
		return err
	}

	end := due.Add(evictionWindow)
	err = e.watch(ctx, end, func() {
		e.say("taint removed, nodes watch held", "eviction due %s, %s pods deleted", since(due), ratio(going(e.truth, victims), evictionPods))
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
	if e.result.Unjustified, err = e.wronged(ctx, victims); err != nil {
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
	for time.Now().Before(end) && going(e.truth, victims) < evictionPods {
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
	if err := e.runPods(ctx, later, laterPods, laterToleration); err != nil {
		return err
	}
	if _, err := workload.SetTaints(ctx, e.rig.Client, e.node, workload.Taint); err != nil {
		return err
	}
	e.say("nodes watch released, node tainted again", "%d more pods to evict", laterPods)
	err := faultrig.Wait(ctx, laterLimit, "the evictions", func() (bool, error) { return going(e.truth, later) == laterPods, nil })
	if err != nil && ctx.Err() != nil {
		return err
	}
	unjustified, err := e.wronged(ctx, later)
	if err != nil {
		return err
	}
	e.result.LaterEvicted = going(e.truth, later) - unjustified
	_, err = workload.SetTaints(ctx, e.rig.Client, e.node)
	return err
}

// runPods runs a group of pods that tolerate the taint for a time, and waits until the kube-controller-manager knows them.
func (e *evictionRun) runPods(ctx context.Context, group string, count int, toleration time.Duration) error {
	last := ""
	for i := range count {
		pod := workload.Tolerating(fmt.Sprintf("%s-%02d", group, i), e.node, toleration)
		pod.Labels[groupLabel] = group
		created, err := e.rig.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("creating pod %s: %w", pod.Name, err)
		}
		last = created.ResourceVersion
	}
	err := faultrig.Wait(ctx, time.Minute, fmt.Sprintf("%d pods to run on %s", count, e.node), func() (bool, error) {
		return running(e.truth, group) == count, nil
	})
	if err != nil {
		return err
	}
	return e.rig.WaitTold(ctx, truth.Pods, last)
}

func since(t time.Time) string {
	if d := time.Until(t); d > 0 {
		return fmt.Sprintf("in %.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s ago", time.Since(t).Seconds())
}
