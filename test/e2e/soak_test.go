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
	"sync/atomic"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/leak"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// What a soak is told by its environment, besides SEED.
const (
	hoursVariable  = "HOURS"       // how long faults are injected, at least
	binaryVariable = "SOAK_BINARY" // another build of Fresh KCM, such as one that leaks
	folderVariable = "SOAK_OUT"    // for the page, and for the scrapes that hack/tools/slo reads
)

const (
	longestSoak = 24 * time.Hour
	// longestRound is how long a schedule is at most; a soak has at least fewestRounds of them.
	longestRound = 5 * time.Minute
	fewestRounds = leak.MinSamples
	// tellEvery is how often the soak says how far it is.
	tellEvery = time.Minute
	// scrapeEvery is often enough for the SLOs of a soak of minutes, and little enough for one of a day.
	scrapeEvery = 30 * time.Second
)

var _ = ginkgo.Describe("Soak", gates.StaleControllerConsistency(), ginkgo.Label("soak"), func() {
	ginkgo.It("does no harm and leaks nothing under random faults for hours", func(ctx context.Context) {
		hours, err := strconv.ParseFloat(os.Getenv(hoursVariable), 64)
		gomega.Expect(err).NotTo(gomega.HaveOccurred(), "%s says how long the soak is, as in %s=0.5", hoursVariable, hoursVariable)
		gomega.Expect(hours).To(gomega.BeNumerically(">", 0), hoursVariable)
		seed := rand.Uint64()
		if text := os.Getenv(seedVariable); text != "" {
			seed, err = strconv.ParseUint(text, 10, 64)
			gomega.Expect(err).NotTo(gomega.HaveOccurred(), seedVariable)
		}
		s := &soak{seed: seed, length: time.Duration(hours * float64(time.Hour)), out: os.Getenv(folderVariable)}
		gomega.Expect(s.run(ctx)).To(gomega.Succeed())
		gomega.Expect(s.wrong).To(gomega.BeEmpty(), "seed %d", seed)
	}, ginkgo.SpecTimeout(longestSoak), ginkgo.PollProgressAfter(longestSoak))
})

// soak is one long run: rounds of a random schedule each, on one kube-controller-manager that lives through all of them.
type soak struct {
	*player
	seed   uint64
	length time.Duration
	out    string

	began          time.Time
	rounds         []round
	now            atomic.Int32 // the number of the round
	steps, faults  atomic.Int64
	lastViolations atomic.Int64
	// wrong is what the spec fails for.
	wrong []string
}

// round is what one of them came to.
type round struct {
	seed          uint64
	steps, faults int
	healed        time.Duration
	violations    []oracle.Violation
	sample        leak.Sample
}

func (s *soak) run(ctx context.Context) (err error) {
	fixture, err := rig.Start(ctx, rig.Options{
		Arm: rig.P, Binary: os.Getenv(binaryVariable), KCMArgs: []string{"--node-monitor-grace-period=20s"},
		Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: schedule.Random(s.seed, 0).Nodes}},
		Record:  []schema.GroupResource{truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions, truth.ReplicaSets, truth.StatefulSets},
	})
	if err != nil {
		return err
	}
	s.player = &player{
		run:  &run{Rig: fixture, judges: randomJudges},
		sets: map[string]types.UID{}, deployments: map[string]int32{}, ordered: map[string]int32{}, faults: map[*faultproxy.Fault]bool{},
	}
	defer func() {
		if err != nil || len(s.wrong) > 0 {
			dir, kept := s.Keep()
			say(fmt.Sprintln("evidence is kept in", dir, kept))
		}
		err = errors.Join(err, s.Stop(ctx))
	}()
	s.began = time.Now()
	stopTelling := every(ctx, tellEvery, func(context.Context, int) error { say(s.progress()); return nil })
	defer stopTelling()
	if s.out != "" {
		stopScraping := every(ctx, scrapeEvery, func(ctx context.Context, _ int) error { return s.scrape(ctx) })
		defer stopScraping()
	}
	length := min(longestRound, s.length/(fewestRounds+1))
	for len(s.rounds) < fewestRounds || time.Since(s.began) < s.length {
		s.now.Add(1)
		if err := s.round(ctx, s.seed+uint64(len(s.rounds)), length); err != nil {
			return fmt.Errorf("round %d: %w", len(s.rounds)+1, err)
		}
	}
	return s.judgeAll()
}

// round plays a schedule, heals the cluster, judges what happened, and takes a sample when nothing is under way any more.
func (s *soak) round(ctx context.Context, seed uint64, length time.Duration) error {
	r := round{seed: seed}
	s.deaths, s.drained, s.violations, s.figures = oracle.Deaths{Nodes: sets.New[string]()}, sets.New[string](), nil, nil
	if err := s.Again(ctx); err != nil {
		return err
	}
	nodes := s.Cluster.Nodes().Names()
	plan := schedule.Random(seed, length)
	// A process that is restarted leaks nothing.
	plan.Steps = slices.DeleteFunc(plan.Steps, func(step schedule.Step) bool { return step.Action == schedule.RestartKCM })
	begin := time.Now()
	for _, step := range plan.Steps {
		select {
		case <-time.After(time.Until(begin.Add(step.At))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		ginkgo.GinkgoWriter.Println(step)
		if err := s.do(ctx, step); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		r.steps++
		s.steps.Add(1)
		if step.Action == schedule.Fault {
			r.faults++
			s.faults.Add(1)
		}
	}
	if err := s.heal(ctx); err != nil {
		return err
	}
	r.healed = s.converges(ctx, "what the schedule asked for", healLimit, func() error { return s.done(ctx) })
	if err := s.standing(ctx); err != nil {
		return err
	}
	r.violations = s.violations
	if len(r.violations) > 0 {
		s.lastViolations.Add(int64(len(r.violations)))
		say(fmt.Sprintf("round %d, seed %d, goes wrong by %v, first: %s", s.now.Load(), seed, oracle.Count(r.violations), first(r.violations)))
		if err := s.Truth.Dump(filepath.Join(s.Cluster.Dir(), "evidence", fmt.Sprint("round-", s.now.Load()))); err != nil {
			return err
		}
	}
	if err := s.shrink(ctx, s.Cluster.Nodes().Names()[len(nodes):]); err != nil {
		return err
	}
	var err error
	r.sample, err = s.sample(ctx)
	s.rounds = append(s.rounds, r)
	return errors.Join(err, s.keepHeap(ctx))
}

// shrink drains and gives back the nodes that have joined in a round, so that the next one begins with as many.
func (s *soak) shrink(ctx context.Context, joined []string) error {
	on := func(of func(*corev1.Pod) bool) (nodes []string) {
		for _, e := range s.Truth.At(truth.Pods, truth.Latest) {
			if pod := e.Object.(*corev1.Pod); slices.Contains(joined, pod.Spec.NodeName) && of(pod) {
				nodes = append(nodes, pod.Spec.NodeName)
			}
		}
		return nodes
	}
	for _, node := range joined {
		if err := s.cordon(ctx, node, true); err != nil {
			return err
		}
	}
	if err := rig.Wait(ctx, healLimit, "drained nodes to have pods of DaemonSets only, and the others to be made again", func() (bool, error) {
		// The scheduler may have put a pod there that it had decided on before the node was cordoned.
		ofNone := func(pod *corev1.Pod) bool { return oracle.DaemonSetOf(pod) == "" }
		for _, node := range on(func(pod *corev1.Pod) bool { return ofNone(pod) && pod.DeletionTimestamp == nil }) {
			if err := s.drain(ctx, node); err != nil {
				return false, err
			}
		}
		return len(on(ofNone)) == 0 && s.done(ctx) == nil, nil
	}); err != nil {
		return err
	}
	if err := s.Cluster.Nodes().Delete(ctx, joined...); err != nil {
		return err
	}
	return rig.Wait(ctx, healLimit, "no pod to be left on nodes that are gone", func() (bool, error) {
		return len(on(func(*corev1.Pod) bool { return true })) == 0 && s.done(ctx) == nil, nil
	})
}

// judgeAll says what was wrong in all rounds, and writes the page.
func (s *soak) judgeAll() error {
	var samples []leak.Sample
	var violations []oracle.Violation
	for _, r := range s.rounds {
		samples, violations = append(samples, r.sample), append(violations, r.violations...)
	}
	if len(violations) > 0 {
		s.wrong = append(s.wrong, fmt.Sprintf("%v, first: %s", oracle.Count(violations), first(violations)))
	}
	leaks, err := leak.Find(samples)
	if err != nil {
		return err
	}
	for _, l := range leaks {
		s.wrong = append(s.wrong, "a leak of "+l)
	}
	page := s.page()
	say(page)
	if s.out == "" {
		return nil
	}
	return errors.Join(os.WriteFile(filepath.Join(s.out, "page.md"), []byte(page), 0o644), s.writeJudge(violations))
}
