// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultrig"
)

const (
	// deathGrace is shorter than the default 50 s to save time, and well over the 10 s between renewals.
	deathGrace  = 25 * time.Second
	deathWindow = time.Minute
	// markLimit is several times what upstream needs for 300 nodes.
	markLimit      = 5 * time.Minute
	recoverLimit   = 2 * time.Minute
	clientQPS      = 20.0 // kube-controller-manager's default
	maxLiveReads   = 12.0 // a minute: the goal of benchmark B6
	nodeLeaseSpace = corev1.NamespaceNodeLease
)

var nodeDeath = Story{
	ID:    "b",
	Title: "all nodes die at once",
	Correct: fmt.Sprintf("A correct KCM marks every node, and once they are marked reads at most %.0f leases a minute live, "+
		"however many nodes are dead.", maxLiveReads),
	Hurts: []controlplane.Arm{controlplane.ArmU1},
	Run:   func(ctx context.Context, o Options) (Result, error) { return RunNodeDeath(ctx, o) },
	Settings: func(o Options) string {
		return fmt.Sprintf("%d nodes, KCM flags default (--kube-api-qps=%.0f) but --node-monitor-grace-period=%v, measured for %.0f s once all are marked",
			o.Nodes, clientQPS, deathGrace, deathWindow.Seconds())
	},
}

// NodeDeathResult is what a kube-controller-manager did when all nodes had died.
type NodeDeathResult struct {
	KCM
	// Nodes died, Marked were marked Unknown within the limit, the last of them TimeToMark after death.
	Nodes, Marked int
	TimeToMark    time.Duration
	// Marking are the requests from death until all were marked, After those of the Window after that.
	Marking, After Requests
	Window         time.Duration
	// Recovered nodes were Ready again, the last of them RecoveredAfter they had come back.
	Recovered      int
	RecoveredAfter time.Duration
}

// LiveReadsPerMinute is the rate of live reads of leases once all nodes were marked.
func (r *NodeDeathResult) LiveReadsPerMinute() float64 {
	return float64(r.After.NodeLeaseReads) / r.Window.Minutes()
}

// Figures implements Result.
func (r *NodeDeathResult) Figures() []Figure {
	reads := r.LiveReadsPerMinute()
	return []Figure{
		{Name: "dead nodes marked", Value: ratio(r.Marked, r.Nodes), Outcome: judge(r.Marked < r.Nodes)},
		{Name: "time until all were marked", Value: fmt.Sprintf("%.1f s", r.TimeToMark.Seconds())},
		{Name: "live reads of leases while marking", Value: fmt.Sprint(r.Marking.NodeLeaseReads)},
		{Name: "live reads of leases a minute, once marked", Value: fmt.Sprintf("%.0f", reads), Outcome: judge(reads > maxLiveReads)},
		{Name: "  as a share of the client's rate", Value: fmt.Sprintf("%.0f %%", 100*reads/(60*clientQPS))},
		{Name: "fences a minute of all resources, once marked", Value: fmt.Sprintf("%.0f", float64(r.After.Fences)/r.Window.Minutes())},
		{Name: "revived nodes Ready again, after", Value: fmt.Sprintf("%s, %.1f s", ratio(r.Recovered, r.Nodes), r.RecoveredAfter.Seconds()), Outcome: judge(r.Recovered < r.Nodes)},
	}
}

// RunNodeDeath runs the story.
func RunNodeDeath(ctx context.Context, o Options) (_ *NodeDeathResult, err error) {
	scene, err := o.begin(ctx, o.Nodes, "--node-monitor-grace-period="+deathGrace.String())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scene.end(ctx)) }()
	d := &deathRun{scene: scene, result: &NodeDeathResult{KCM: scene.subject, Nodes: o.Nodes, Window: deathWindow}}
	if err := d.known(ctx); err != nil {
		return nil, err
	}
	if err := d.die(ctx); err != nil {
		return nil, err
	}
	if err := d.revive(ctx); err != nil {
		return nil, err
	}
	return d.result, d.rig.SameKCM(ctx)
}

// deathRun is the story under way.
type deathRun struct {
	*scene
	result *NodeDeathResult
}

// known waits until the kube-controller-manager has been through all nodes and knows their leases.
func (d *deathRun) known(ctx context.Context) error {
	d.say("waiting until the KCM knows all nodes", "")
	err := faultrig.Wait(ctx, time.Minute, "the node lifecycle controller to count all nodes", func() (bool, error) {
		metrics, err := d.rig.KCM.Get(ctx, "/metrics")
		if err != nil {
			return false, err
		}
		return zoneSizes(metrics) == d.Nodes, nil
	})
	if err != nil {
		return err
	}
	leases, err := d.rig.Client.CoordinationV1().Leases(nodeLeaseSpace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the nodes' leases: %w", err)
	}
	if len(leases.Items) < d.Nodes {
		return fmt.Errorf("only %s nodes have leases", ratio(len(leases.Items), d.Nodes))
	}
	newest := leases.Items[0].ResourceVersion
	for _, l := range leases.Items {
		if c, err := resourceversion.CompareResourceVersion(l.ResourceVersion, newest); err != nil {
			return fmt.Errorf("lease of node %s: %w", l.Name, err)
		} else if c > 0 {
			newest = l.ResourceVersion
		}
	}
	return d.rig.WaitTold(ctx, coordinationv1.Resource("leases"), newest)
}

// zoneSizes adds up how many nodes the node lifecycle controller counted in its last pass.
func zoneSizes(metrics []byte) int {
	total := 0
	for line := range strings.Lines(string(metrics)) {
		if !strings.HasPrefix(line, "node_collector_zone_size{") {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(line[strings.LastIndex(line, " ")+1:]))
		if err == nil {
			total += n
		}
	}
	return total
}

// die kills all nodes, waits until they are marked, and counts requests for a while after.
func (d *deathRun) die(ctx context.Context) error {
	if ready := readiness(d.truth, corev1.ConditionTrue); ready != d.Nodes {
		return fmt.Errorf("only %s nodes are Ready before they are to die", ratio(ready, d.Nodes))
	}
	if err := d.rig.Cluster.Nodes().KillAll(); err != nil {
		return fmt.Errorf("killing all nodes: %w", err)
	}
	died := time.Now()
	lastSaid := died
	err := faultrig.Wait(ctx, markLimit, "all nodes to be marked", func() (bool, error) {
		d.result.Marked = readiness(d.truth, corev1.ConditionUnknown)
		if time.Since(lastSaid) > time.Second {
			lastSaid = time.Now()
			d.say("all nodes are dead", "for %.0f s, %s marked Unknown", time.Since(died).Seconds(), ratio(d.result.Marked, d.Nodes))
		}
		return d.result.Marked == d.Nodes, nil
	})
	if err != nil && ctx.Err() != nil {
		return err
	}
	marked := time.Now()
	d.result.TimeToMark = marked.Sub(died)

	if err := d.count(ctx, marked); err != nil {
		return err
	}
	log := d.apiServer().AuditLogPath()
	if d.result.Marking, err = CountRequests(log, died, marked); err != nil {
		return err
	}
	if d.result.After, err = CountRequests(log, marked, marked.Add(deathWindow)); err != nil {
		return err
	}
	if err := d.led(ctx, marked); err != nil {
		return err
	}
	return d.dead(ctx, died)
}

// led proves that the kube-controller-manager was alive and leading while it was measured.
func (d *deathRun) led(ctx context.Context, marked time.Time) error {
	lease, err := d.rig.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "kube-controller-manager", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the leader lease: %w", err)
	}
	if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(marked) {
		return errors.New("the story means nothing: the kube-controller-manager did not renew its own lease while it was measured")
	}
	return nil
}

// count lets the window pass.
func (d *deathRun) count(ctx context.Context, marked time.Time) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for time.Since(marked) < deathWindow {
		d.say(fmt.Sprintf("%s nodes marked after %.1f s, counting live reads", ratio(d.result.Marked, d.Nodes), d.result.TimeToMark.Seconds()),
			"%.0f s to go", (deathWindow - time.Since(marked)).Seconds())
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
	return nil
}

// dead proves that the nodes were: no lease was renewed after their death, but for requests under way then.
func (d *deathRun) dead(ctx context.Context, died time.Time) error {
	leases, err := d.rig.Client.CoordinationV1().Leases(nodeLeaseSpace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the nodes' leases: %w", err)
	}
	for _, l := range leases.Items {
		if l.Spec.RenewTime != nil && l.Spec.RenewTime.After(died.Add(time.Second)) {
			return fmt.Errorf("the fault was not injected: the lease of node %s was renewed %v after the node's death",
				l.Name, l.Spec.RenewTime.Sub(died))
		}
	}
	return nil
}

// revive brings the nodes back and waits until they are Ready.
func (d *deathRun) revive(ctx context.Context) error {
	d.say("nodes come back", "")
	begin := time.Now()
	if err := d.rig.Cluster.Nodes().ReviveAll(); err != nil {
		return fmt.Errorf("reviving all nodes: %w", err)
	}
	err := faultrig.Wait(ctx, recoverLimit, "all nodes to be Ready again", func() (bool, error) {
		d.result.Recovered = readiness(d.truth, corev1.ConditionTrue)
		return d.result.Recovered == d.Nodes, nil
	})
	if err != nil && ctx.Err() != nil {
		return err
	}
	d.result.RecoveredAfter = time.Since(begin)
	return nil
}
