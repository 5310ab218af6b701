// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	pprof "github.com/google/pprof/profile"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/measure"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/profile"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/faultrig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	turnPrefix = "turn-"
	// scrapeEvery is how often kube-controller-manager is scraped.
	scrapeEvery = 5 * time.Second
	// measuredLimit is how long P's monitor may take to know how old each cache is. Those that no protected controller
	// reads may take longer, and are not waited for.
	measuredLimit = 30 * time.Second
	// leastCaches there are once its controllers have begun; some come later, with the garbage collector's first sync.
	leastCaches = 50
	// profileLength is how much of a turn a CPU profile shows.
	profileLength = 10 * time.Second
)

// recorded are what the oracles need.
var recorded = []schema.GroupResource{truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions, truth.ReplicaSets, truth.Leases}

// turn is one arm's turn at a benchmark.
type turn struct {
	*session
	spec      spec.Benchmark
	arm       controlplane.Arm
	namespace string
	say       func(format string, args ...any)

	// replacing is held while kcm is replaced, and while it is scraped in the background.
	replacing sync.Mutex
	kcm       *controlplane.KCM
	options   controlplane.KCMOptions
	// led is when the successor of the first kcm began to lead; zero without a handover.
	led    time.Time
	proxy  *faultproxy.Proxy
	pid    int
	truth  *truth.Recorder
	deaths oracle.Deaths

	began time.Time
	// ended is when the end state was reached, for workloads that know better than by the last write.
	ended time.Time
	// readsFrom and readsFor are the time in which live reads are counted; zero means all of the workload.
	readsFrom time.Time
	readsFor  time.Duration
	figures   map[string]float64
}

// turn runs one, from the start of the kube-controller-manager to a cluster that is as it was before.
func (r *runner) turn(ctx context.Context, s *session, b spec.Benchmark, arm controlplane.Arm, round int) (err error) {
	name := fmt.Sprintf("%s%d", turnPrefix, r.number)
	r.number++
	r.progress.Turn = fmt.Sprintf("%s, arm %s, round %d of %d", b.Name, arm, round, b.Repeats)
	if round == 0 {
		r.progress.Turn = fmt.Sprintf("%s, warm-up", b.Name)
	}
	pace, err := measure.Pace()
	if err != nil {
		return err
	}
	t := &turn{session: s, spec: b, arm: arm, namespace: name, say: r.say, figures: map[string]float64{sample.Pace: pace}}
	defer func() {
		if t.truth != nil {
			t.truth.Stop()
		}
		if t.proxy != nil {
			t.proxy.Close()
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", r.progress.Turn, err)
		}
	}()
	if err := t.start(ctx, name); err != nil {
		return err
	}
	out := sample.Sample{Benchmark: b.Name, Arm: arm, Round: round, Warmup: round == 0}
	raw := filepath.Join(r.Raw, out.Turn())
	if err := t.measure(ctx, &out, raw, r.Profile); err != nil {
		return err
	}
	r.say("cleaning up")
	if err := t.end(ctx); err != nil {
		return err
	}
	r.progress.Done++
	return r.Record(out)
}

// start starts the kube-controller-manager and returns when it has nothing left to do.
func (t *turn) start(ctx context.Context, name string) (err error) {
	t.say("starting kube-controller-manager")
	options := controlplane.KCMOptions{Arm: t.arm, Name: name, ProcessOptions: controlplane.ProcessOptions{Binary: t.own(t.arm), Args: []string{
		fmt.Sprintf("--kube-api-qps=%d", t.spec.QPS), fmt.Sprintf("--kube-api-burst=%d", t.spec.QPS+t.spec.QPS/2),
	}}}
	if t.spec.Grace.Duration > 0 {
		options.Args = append(options.Args, "--node-monitor-grace-period="+t.spec.Grace.Duration.String())
	}
	if t.spec.Fault != nil || t.spec.Workload.Stalls != nil {
		if t.proxy, err = faultrig.StartProxy(ctx, t.cluster); err != nil {
			return err
		}
		options.Server = t.proxy.URL()
	}
	t.options = options
	if t.kcm, err = t.cluster.StartKCM(ctx, options); err != nil {
		return err
	}
	t.pid = t.kcm.PID()
	if err := t.session.namespace(ctx, t.namespace); err != nil {
		return err
	}
	t.say("waiting until it knows all")
	if err := t.knows(ctx); err != nil {
		return err
	}
	// What was before is not this turn's.
	if err := t.audit.Forget(t.cluster.APIServers()...); err != nil {
		return err
	}
	if t.truth, err = truth.Record(ctx, t.cluster.AdminConfig(), recorded...); err != nil {
		return err
	}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	if _, err = t.settled(ctx, t.namespace, time.Now()); err != nil {
		return err
	}
	// A start reports every node. These events are not of the workload, and come over a while.
	return t.eventually(ctx, "kube-controller-manager to have sent the events of its start", func() (bool, error) {
		events, err := t.audit.Read(t.cluster.APIServers()...)
		now := time.Now()
		return oracle.RequestsIn(events, now.Add(-quiet), now).Sum(oracle.Request.Writes) == 0, err
	})
}

// knows waits until node lifecycle has been through all nodes, and the monitor knows the age of the caches.
func (t *turn) knows(ctx context.Context) error {
	count := float64(len(t.cluster.Nodes().Names()))
	err := t.eventually(ctx, "node lifecycle to count all nodes", func() (bool, error) {
		m, err := t.scrape(ctx)
		return m.Sum("node_collector_zone_size") == count, err
	})
	if err != nil || t.arm != controlplane.ArmP {
		return err
	}
	began := time.Now()
	return t.eventually(ctx, "the monitor to know the age of the caches", func() (bool, error) {
		m, err := t.scrape(ctx)
		all, unknown := m.Caches()
		return all > leastCaches && unknown == 0 || time.Since(began) > measuredLimit, err
	})
}

func (t *turn) scrape(ctx context.Context) (measure.Metrics, error) {
	page, err := t.kcm.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return measure.Parse(page)
}

// page gets the metrics of the kube-controller-manager that leads.
func (t *turn) page(ctx context.Context) ([]byte, error) {
	t.replacing.Lock()
	defer t.replacing.Unlock()
	return t.kcm.Get(ctx, "/metrics")
}

// measure runs the workload.
func (t *turn) measure(ctx context.Context, out *sample.Sample, raw string, keepProfile bool) (err error) {
	series, err := measure.Record(ctx, raw, scrapeEvery, t.page)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, series.Stop()) }()
	var allocated *pprof.Profile
	if keepProfile {
		if allocated, err = t.allocated(ctx); err != nil {
			return err
		}
	}
	before, err := t.look(ctx, series, true)
	if err != nil {
		return err
	}
	var fault *faultproxy.Fault
	if t.spec.Fault != nil {
		if fault, err = t.inject(); err != nil {
			return err
		}
		defer fault.Clear()
	}
	profiled := make(chan error, 1)
	if keepProfile {
		go func() { profiled <- t.profile(ctx, raw+profile.Extension) }()
	} else {
		profiled <- nil
	}
	t.began = time.Now()
	if err := t.work(ctx); err != nil {
		return err
	}
	if fault != nil {
		t.say("waiting for what the fault has kept back")
		fault.Clear()
		if err := faultrig.Sleep(ctx, passPeriod); err != nil {
			return err
		}
	}
	t.say("waiting until it has nothing left to do")
	last, err := t.settled(ctx, t.namespace, t.began)
	if err != nil {
		return err
	}
	if t.ended.IsZero() {
		t.ended = last
	}
	after, err := t.look(ctx, series, false)
	if err != nil {
		return err
	}
	now := time.Now()
	if keepProfile {
		if err := t.keepAllocations(ctx, allocated, raw+profile.Allocations); err != nil {
			return err
		}
	}
	if err := errors.Join(<-profiled, t.same(ctx), t.proven(fault)); err != nil {
		return err
	}
	out.Began, out.Seconds = t.began, now.Sub(t.began).Seconds()
	if !t.spec.Endless() {
		t.figures[sample.End] = t.ended.Sub(t.began).Seconds()
	}
	if !t.led.IsZero() {
		before.manager, before.kcm = measure.Process{}, nil // the successor's, which began with nothing
	}
	before.figures(after, t.spec.Calm(), t.figures)
	for figure, gauge := range map[string]string{sample.QueueDepth: "workqueue_depth", sample.HandlerLag: "informer_staleness_handler_lag_seconds"} {
		if v, ok := series.Most(gauge); ok {
			t.figures[figure] = v
		}
	}
	out.APICalls = measure.Requests(before.apiserver, after.apiserver)
	for _, n := range out.APICalls {
		t.figures[sample.APICalls] += float64(n)
	}
	if err := t.requests(out, now); err != nil {
		return err
	}
	if err := t.judge(ctx, out, series); err != nil {
		return err
	}
	out.Figures = t.figures
	return nil
}

// inject puts the fault on the watches of kube-controller-manager.
func (t *turn) inject() (*faultproxy.Fault, error) {
	resource := map[string]schema.GroupResource{"pods": truth.Pods, "nodes": truth.Nodes, "leases": truth.Leases}[t.spec.Fault.Resource]
	var effect faultproxy.Effect = faultproxy.Hold{}
	if t.spec.Fault.Effect == spec.EffectDelay {
		effect = faultproxy.Delay{By: t.spec.Fault.Delay.Duration}
	}
	return t.proxy.Inject(faultproxy.Target{Resource: resource}, effect)
}

// proven returns an error if there was a fault that touched nothing.
func (t *turn) proven(fault *faultproxy.Fault) error {
	if fault == nil {
		return nil
	}
	if s := fault.Stats(); s.Touched() == 0 {
		return fmt.Errorf("the fault %s of %s touched no event", s.Effect, s.Resource)
	}
	return nil
}

// same returns an error if it is not the process that was started, or does not lead.
func (t *turn) same(ctx context.Context) error {
	if pid := t.kcm.PID(); pid != t.pid {
		return fmt.Errorf("kube-controller-manager died (pid was %d, is %d); log: %s", t.pid, pid, t.kcm.LogPath())
	}
	leads, err := t.kcm.IsLeader(ctx)
	if err == nil && !leads {
		err = errors.New("kube-controller-manager lost its leadership")
	}
	return err
}

// requests counts what kube-controller-manager asked until a time.
func (t *turn) requests(out *sample.Sample, until time.Time) error {
	events, err := t.audit.Read(t.cluster.APIServers()...)
	if err != nil {
		return err
	}
	out.KCMCalls = map[string]int{}
	for _, name := range []string{sample.KCMWrites, sample.KCMReads, sample.KCMEvents, sample.KCMProbes} {
		t.figures[name] = 0
	}
	for request, n := range oracle.RequestsIn(events, t.began, until) {
		kind := sample.KCMReads
		switch {
		case request.Probe:
			kind = sample.KCMProbes
		case request.Resource == "events":
			kind = sample.KCMEvents
		case request.Writes():
			kind = sample.KCMWrites
		}
		t.figures[kind] += float64(n)
		if kind != sample.KCMProbes {
			out.KCMCalls[request.Verb+" "+request.Resource] += n
		}
	}
	from, length := t.readsFrom, t.readsFor
	if from.IsZero() {
		from, length = t.began, until.Sub(t.began)
	}
	t.figures[sample.LiveReads] = float64(len(oracle.ReadsIn(events, from, from.Add(length)).Live)) / length.Minutes()
	return nil
}

// judge counts wrong actions by what really happened.
func (t *turn) judge(ctx context.Context, out *sample.Sample, series *measure.Series) error {
	if err := t.truth.Sync(ctx); err != nil {
		return err
	}
	events, err := t.audit.Read(t.cluster.APIServers()...)
	if err != nil {
		return err
	}
	writes := oracle.Writes(events)
	all := slices.Concat(
		oracle.Surplus(t.truth),
		oracle.Unjustified(t.truth, writes, t.deaths, oracle.DaemonSetDeletes, oracle.ReplicaSetDeletes, oracle.TaintEvictions, oracle.OrphanDeletes, notJudged),
		oracle.BehindOwnWrites(t.truth, writes),
	)
	// What was done before is not the workload's.
	all = slices.DeleteFunc(all, func(v oracle.Violation) bool { return v.Time.Before(t.began) })
	out.Wrong = oracle.Count(all)
	t.figures[sample.Wrong] = float64(len(all))
	if !t.led.IsZero() {
		t.firstRight(events, all)
	}
	byOracle := map[string]int{}
	for _, name := range []string{"S1", "S2", "S3"} {
		byOracle[name] = len(oracle.Of(all, name))
	}
	return series.Judge(byOracle)
}

// notJudged excuses deletions by the StatefulSet controller, whose objects are not recorded.
func notJudged(_ *truth.Recorder, d oracle.Deletion) string {
	if d.By == workload.StatefulSetAccount {
		return "not judged"
	}
	return ""
}

// profile keeps a CPU profile of the beginning.
func (t *turn) profile(ctx context.Context, path string) error {
	data, err := t.kcm.Get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(profileLength.Seconds())))
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// allocated is what kube-controller-manager has allocated since its start.
func (t *turn) allocated(ctx context.Context) (*pprof.Profile, error) {
	data, err := t.kcm.Get(ctx, "/debug/pprof/allocs")
	if err != nil {
		return nil, err
	}
	return pprof.ParseData(data)
}

// keepAllocations keeps a profile of what kube-controller-manager has allocated since it had allocated as much as before says; a successor began with
// nothing.
func (t *turn) keepAllocations(ctx context.Context, before *pprof.Profile, path string) error {
	now, err := t.allocated(ctx)
	if err != nil {
		return err
	}
	if t.led.IsZero() {
		if now, err = profile.Since(before, now); err != nil {
			return err
		}
	}
	return profile.Write(now, path)
}

// end leaves the cluster as it was, without a kube-controller-manager.
func (t *turn) end(ctx context.Context) error {
	t.truth.Stop()
	if err := t.revive(ctx); err != nil {
		return err
	}
	if err := t.removeNamespace(ctx, t.namespace); err != nil {
		return err
	}
	if err := t.healthy(ctx); err != nil {
		return err
	}
	return t.resign(ctx, t.kcm)
}
