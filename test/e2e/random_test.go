// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

// What a random run is told by its environment.
const (
	seedVariable     = "SEED"     // of the schedule; unset: a new one, which is printed
	lengthVariable   = "LENGTH"   // of the schedule, a duration
	scheduleVariable = "SCHEDULE" // a file to replay instead
	shrinkVariable   = "SHRINK"   // how many runs may be spent on shortening a schedule that fails
)

const (
	defaultLength = time.Minute
	// healLimit is how long a healed cluster may take: watches that were dropped in silence come back with
	// the next list, dead nodes with their next heartbeat.
	healLimit = 3 * time.Minute
	// randomGrace takes the place of upstream's grace period of nodes.
	randomGrace = 20 * time.Second
	// longestDelay is how late events come at most.
	longestDelay = 3 * time.Second
	// putOffFor is for how long the server asks to wait before a write is sent again.
	putOffFor = 5 * time.Second
)

var _ = ginkgo.Describe("Random schedule", gates.StaleControllerConsistency(), ginkgo.Label("random", long), func() {
	ginkgo.It("does no harm and ends as asked", func(ctx context.Context) {
		arm := rig.P
		if chosen := os.Getenv(armVariable); chosen != "" {
			var err error
			arm, err = rig.ParseArm(chosen)
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
		s, err := chosenSchedule()
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		ours, err := play(ctx, arm, s)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		violations := ours.violations
		// What is compared needs stock on the same schedule, which is as long again.
		compared := len(violations) == 0
		if compared {
			violations, err = ours.besideStock(ctx)
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
		if len(violations) == 0 {
			if os.Getenv(scheduleVariable) == "" { // a shortened schedule may have nothing left that touches anything
				gomega.Expect(ours.unproven).To(gomega.BeEmpty(), "the faults were injected and did enough (V)")
			}
			return
		}
		if budget, _ := strconv.Atoi(os.Getenv(shrinkVariable)); budget > 0 {
			s = s.Shrink(budget, func(s schedule.Schedule) bool {
				again, err := play(ctx, arm, s)
				gomega.Expect(err).NotTo(gomega.HaveOccurred())
				if !compared || len(again.violations) > 0 {
					return len(again.violations) > 0
				}
				unlike, err := again.besideStock(ctx)
				gomega.Expect(err).NotTo(gomega.HaveOccurred())
				return len(unlike) > 0
			})
		}
		path := filepath.Join(os.TempDir(), fmt.Sprintf("fresh-kcm-schedule-%d.json", s.Seed))
		gomega.Expect(s.Save(path)).To(gomega.Succeed())
		ginkgo.Fail(fmt.Sprintf("arm %s goes wrong by %v, first: %s; replay it with %s=%s", arm, oracle.Count(violations), first(violations), scheduleVariable, path))
	}, ginkgo.SpecTimeout(2*time.Hour))
})

func chosenSchedule() (schedule.Schedule, error) {
	if path := os.Getenv(scheduleVariable); path != "" {
		return schedule.Load(path)
	}
	seed, length := rand.Uint64(), defaultLength
	var err error
	if text := os.Getenv(seedVariable); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			return schedule.Schedule{}, fmt.Errorf("%s: %w", seedVariable, err)
		}
	}
	if text := os.Getenv(lengthVariable); text != "" {
		if length, err = time.ParseDuration(text); err != nil {
			return schedule.Schedule{}, fmt.Errorf("%s: %w", lengthVariable, err)
		}
	}
	return schedule.Random(seed, length), nil
}

// player plays one schedule on one cluster.
type player struct {
	*run
	sets    map[string]types.UID
	drained sets.Set[string]
	// deployments and ordered are the replicas of Deployments and StatefulSets.
	deployments, ordered map[string]int32

	mu     sync.Mutex
	faults map[*faultproxy.Fault]bool
	// blind are the times in which nobody could know that a node is dead, down those in which no controller ran.
	blind, down []oracle.Period
	// slowest is how long a pass over the nodes took at most.
	slowest time.Duration
}

// randomJudges know what the controllers at work may delete.
var randomJudges = []oracle.Judge{oracle.ReplicaSetDeletes, oracle.StatefulSetDeletes, oracle.TaintEvictions}

// play runs a schedule on a new cluster, heals everything, and returns what happened.
func play(ctx context.Context, arm rig.Arm, s schedule.Schedule) (_ played, err error) {
	started := time.Now()
	say(fmt.Sprintf("random schedule on %s: %s=%d, %d steps in %s", arm, seedVariable, s.Seed, len(s.Steps), s.End()))
	binary := ""
	if arm == rig.P {
		binary = os.Getenv(binaryVariable)
	}
	fixture, err := rig.Start(ctx, rig.Options{
		Arm: arm, Binary: binary, KCMArgs: append([]string{"--node-monitor-grace-period=" + randomGrace.String()}, quickElection...),
		Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: s.Nodes}},
		Record:  []schema.GroupResource{truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions, truth.ReplicaSets, truth.StatefulSets, truth.Leases},
		Rest:    true,
	})
	if err != nil {
		return played{}, err
	}
	p := &player{
		run: &run{Rig: fixture, deaths: oracle.Deaths{Nodes: sets.New[string](), Grace: randomGrace},
			judges: randomJudges},
		sets: map[string]types.UID{}, deployments: map[string]int32{}, ordered: map[string]int32{}, drained: sets.New[string](), faults: map[*faultproxy.Fault]bool{},
	}
	defer func() {
		failed := err != nil || len(p.violations) > 0
		scenario{title: fmt.Sprintf("Random schedule %d", s.Seed)}.report(variant{arm: arm}, p.run, time.Since(started), failed)
		if failed {
			dir, kept := p.Keep()
			say(fmt.Sprintln("evidence is kept in", dir, kept))
		}
		err = errors.Join(err, p.Stop(ctx))
	}()
	stop := p.bystanders(ctx)
	defer stop()
	begin := time.Now()
	for _, step := range s.Steps {
		select {
		case <-time.After(time.Until(begin.Add(step.At))):
		case <-ctx.Done():
			return played{}, context.Cause(ctx)
		}
		ginkgo.GinkgoWriter.Println(step)
		if err := p.do(ctx, step); err != nil {
			return played{}, fmt.Errorf("%s: %w", step, err)
		}
	}
	if err := p.heal(ctx); err != nil {
		return played{}, err
	}
	stop()
	p.figure("steps, seed", "%d, %d", len(s.Steps), s.Seed)
	p.figure("L after", "%.1fs", p.converges(ctx, "what the schedule asked for", healLimit, func() error { return p.done(ctx) }).Seconds())
	if err := p.standing(ctx); err != nil {
		return played{}, err
	}
	return p.outcome(ctx, s)
}

// do carries out a step; one that has nothing to act on does nothing.
func (p *player) do(ctx context.Context, step schedule.Step) error {
	switch step.Action {
	case schedule.CreateDaemonSet, schedule.UpdateDaemonSet, schedule.DeleteDaemonSet:
		return p.daemonSet(ctx, step)
	case schedule.CreateDeployment, schedule.ScaleDeployment, schedule.UpdateDeployment:
		return p.deployment(ctx, step)
	case schedule.CreateStatefulSet, schedule.ScaleStatefulSet, schedule.UpdateStatefulSet:
		return p.statefulSet(ctx, step)
	case schedule.JoinNodes:
		_, err := p.Cluster.Nodes().Create(ctx, controlplane.NodeOptions{Count: step.Count})
		return err
	case schedule.DrainNode:
		return p.drain(ctx, p.node(step.Count))
	case schedule.KillNode:
		p.deaths.Nodes.Insert(p.node(step.Count))
		return p.Cluster.Nodes().Kill(ctx, p.node(step.Count))
	case schedule.ReviveNode:
		return p.Cluster.Nodes().Revive(ctx, p.node(step.Count))
	case schedule.RestartKCM:
		return p.restart(ctx)
	case schedule.Fault:
		return p.fault(step)
	}
	return fmt.Errorf("unknown action %q", step.Action)
}

func (p *player) node(number int) string {
	names := p.Cluster.Nodes().Names()
	return names[number%len(names)]
}

func (p *player) daemonSet(ctx context.Context, step schedule.Step) error {
	client := p.Client.AppsV1().DaemonSets(metav1.NamespaceDefault)
	_, there := p.sets[step.Name]
	switch {
	case step.Action == schedule.CreateDaemonSet && !there:
		// Its predecessor may still be there. What is asked for in the end must not depend on how fast it goes.
		return rig.Wait(ctx, healLimit, "the predecessor of "+step.Name+" to be gone", func() (bool, error) {
			made, err := client.Create(ctx, workload.DaemonSet(step.Name, workload.MaxUnavailable(step.Count)), metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return false, nil
			}
			if err == nil {
				p.sets[step.Name] = made.UID
			}
			return err == nil, err
		})
	case step.Action == schedule.UpdateDaemonSet && there:
		_, err := client.Patch(ctx, step.Name, types.StrategicMergePatchType, template(step), metav1.PatchOptions{})
		return err
	case step.Action == schedule.DeleteDaemonSet && there:
		delete(p.sets, step.Name)
		return client.Delete(ctx, step.Name, metav1.DeleteOptions{})
	}
	return nil
}

// template is a patch that changes the template of a workload.
func template(step schedule.Step) []byte {
	return fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"%s:%d"}]}}}}`, workload.Image, step.Count)
}

func (p *player) deployment(ctx context.Context, step schedule.Step) error {
	client := p.Client.AppsV1().Deployments(metav1.NamespaceDefault)
	return replicated(step, p.deployments, func() error {
		_, err := client.Create(ctx, workload.Deployment(step.Name, int32(step.Count)), metav1.CreateOptions{})
		return err
	}, func(how types.PatchType, patch []byte) error {
		_, err := client.Patch(ctx, step.Name, how, patch, metav1.PatchOptions{})
		return err
	})
}

func (p *player) statefulSet(ctx context.Context, step schedule.Step) error {
	client := p.Client.AppsV1().StatefulSets(metav1.NamespaceDefault)
	return replicated(step, p.ordered, func() error {
		_, err := client.Create(ctx, workload.StatefulSet(step.Name, int32(step.Count)), metav1.CreateOptions{})
		return err
	}, func(how types.PatchType, patch []byte) error {
		_, err := client.Patch(ctx, step.Name, how, patch, metav1.PatchOptions{})
		return err
	})
}

// replicated carries out a step on a workload with replicas, which of notes by its name: nothing, if it is to be made and is there, or to be changed and is not.
func replicated(step schedule.Step, of map[string]int32, create func() error, patch func(types.PatchType, []byte) error) error {
	_, there := of[step.Name]
	making := step.Action == schedule.CreateDeployment || step.Action == schedule.CreateStatefulSet
	if making == there {
		return nil
	}
	var err error
	switch {
	case making:
		err = create()
	case step.Action == schedule.UpdateDeployment || step.Action == schedule.UpdateStatefulSet:
		return patch(types.StrategicMergePatchType, template(step))
	default:
		err = patch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, step.Count))
	}
	of[step.Name] = int32(step.Count)
	return err
}

// drain cordons a node and evicts what no DaemonSet has put there.
func (p *player) drain(ctx context.Context, node string) error {
	if err := p.cordon(ctx, node, true); err != nil {
		return err
	}
	p.drained.Insert(node)
	pods, err := p.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if oracle.DaemonSetOf(&pod) != "" {
			continue
		}
		err := p.Client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (p *player) cordon(ctx context.Context, node string, on bool) error {
	_, err := p.Client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on), metav1.PatchOptions{})
	return err
}

// fault injects a fault that clears itself.
func (p *player) fault(step schedule.Step) error {
	effects := map[schedule.Effect]faultproxy.Effect{
		schedule.Hold:              faultproxy.Hold{},
		schedule.Delay:             faultproxy.Delay{By: min(step.For, longestDelay)},
		schedule.StopReading:       faultproxy.StopReading{},
		schedule.DropStream:        faultproxy.DropStream{},
		schedule.SuppressBookmarks: faultproxy.SuppressBookmarks{},
		schedule.Gone:              faultproxy.Gone{},
		schedule.TooManyRequests:   faultproxy.TooManyRequests{RetryAfter: time.Second, Verbs: []string{"list", "watch"}},
		schedule.TooLargeRV:        faultproxy.TooLargeRV{},
		schedule.PutOff:            faultproxy.TooManyRequests{RetryAfter: putOffFor, Verbs: []string{"create", "update", "patch", "delete"}},
		schedule.LoseAnswers:       faultproxy.LoseAnswers{},
	}
	effect, ok := effects[step.Effect]
	if !ok {
		return fmt.Errorf("unknown effect %q", step.Effect)
	}
	fault, err := p.Proxy.Inject(faultproxy.Target{Resource: schema.ParseGroupResource(step.Resource)}, effect)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[fault] = true
	p.run.faults = append(p.run.faults, fault)
	blinds := blinds(step)
	from := time.Now()
	time.AfterFunc(step.For, func() { p.clear(fault, blinds, from) })
	return nil
}

func (p *player) clear(fault *faultproxy.Fault, blinds bool, from time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.faults[fault] {
		delete(p.faults, fault)
		fault.Clear()
		if blinds {
			p.blind = append(p.blind, oracle.Period{From: from, To: time.Now()})
		}
	}
}

// heal waits for the faults to end and gives back every node. The truth has what it did when it returns.
func (p *player) heal(ctx context.Context) error {
	err := rig.Wait(ctx, time.Minute, "the faults to end", func() (bool, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.faults) == 0, nil
	})
	if err != nil {
		return err
	}
	for node := range p.drained {
		if err := p.cordon(ctx, node, false); err != nil {
			return err
		}
	}
	if err := p.Cluster.Nodes().Revive(ctx, p.deaths.Nodes.UnsortedList()...); err != nil {
		return err
	}
	if err := p.Cluster.Nodes().WaitReady(ctx, p.Cluster.Nodes().Names()...); err != nil {
		return err
	}
	return p.Truth.Sync(ctx)
}

// done returns nil if the cluster is in the end state that the schedule asks for.
func (p *player) done(ctx context.Context) error {
	if err := oracle.NodesReady(p.Truth, p.Cluster.Nodes().Names()...); err != nil {
		return err
	}
	if left := oracle.LeftOver(p.Truth); len(left) > 0 {
		return fmt.Errorf("there are still %d pods that are going or have lost their owner, first: %s", len(left), left[0])
	}
	for _, set := range p.sets {
		if err := oracle.DaemonSetDone(p.Truth, set, len(p.Cluster.Nodes().Names())); err != nil {
			return err
		}
	}
	for name, replicas := range p.deployments {
		d, err := p.Client.AppsV1().Deployments(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		counts := []int32{d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas}
		if !slices.Equal(counts, slices.Repeat([]int32{replicas}, len(counts))) || d.Status.ObservedGeneration != d.Generation {
			return fmt.Errorf("Deployment %s has %v replicas, updated, ready, available, want %d of each", name, counts, replicas)
		}
		if n := p.livePods(name); n != int(replicas) {
			return fmt.Errorf("Deployment %s has %d live pods, want %d", name, n, replicas)
		}
	}
	for name, replicas := range p.ordered {
		set, err := p.Client.AppsV1().StatefulSets(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n := p.livePods(name); n != int(replicas) || !workload.StatefulSetDone(set) {
			return fmt.Errorf("StatefulSet %s has %d live pods, want %d; its status: %d replicas, %d updated, %d available", name, n, replicas,
				set.Status.Replicas, set.Status.UpdatedReplicas, set.Status.AvailableReplicas)
		}
	}
	return nil
}

func (p *player) livePods(app string) int {
	n := 0
	for _, e := range p.Truth.At(truth.Pods, truth.Latest) {
		if pod := e.Object.(*corev1.Pod); pod.Labels["app"] == app && pod.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}
