// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// Benchmark is one file.
type Benchmark struct {
	// Name identifies the benchmark in results: lower case, digits and dashes.
	Name string `json:"name"`
	// Title says in a line what happens.
	Title string `json:"title"`
	// ID is the benchmark's in the list of goals, B3 for instance; empty for the everyday loads.
	ID string `json:"id,omitempty"`
	// Nodes is how many nodes the cluster has.
	Nodes int `json:"nodes"`
	// QPS is kube-controller-manager's --kube-api-qps; its burst is half as much again, as the defaults are.
	QPS int `json:"qps"`
	// Repeats is how often each arm is measured. Zero means DefaultRepeats.
	Repeats int `json:"repeats,omitempty"`
	// Arms take turns. Empty means all: U0, U1, P.
	Arms []controlplane.Arm `json:"arms,omitempty"`
	// Lease is the nodes' lease duration, Grace kube-controller-manager's --node-monitor-grace-period. Zero means
	// upstream's, 40 s and 50 s.
	Lease metav1.Duration `json:"lease,omitzero"`
	Grace metav1.Duration `json:"grace,omitzero"`
	// LeaseGenerator has the leases renewed by a generator in kwok's place, which watches all of them.
	LeaseGenerator bool `json:"leaseGenerator,omitempty"`
	// Workload is what is measured.
	Workload Workload `json:"workload"`
	// Fault is between kube-controller-manager and the apiserver while the workload runs. Nil means none, and no proxy.
	Fault *Fault `json:"fault,omitempty"`
	// Goals are what P must reach.
	Goals []Goal `json:"goals,omitempty"`
}

// defaultLease is the kubelet's. A lease is renewed every quarter of it.
const defaultLease = 40 * time.Second

// defaultGrace is kube-controller-manager's.
const defaultGrace = 50 * time.Second

// Settings says in words what of the cluster is not as upstream's defaults; empty if nothing is.
func (b Benchmark) Settings() string {
	var out []string
	if b.Lease.Duration > 0 {
		out = append(out, fmt.Sprintf("leases of %v in place of %v", b.Lease.Duration, defaultLease))
	}
	if b.Grace.Duration > 0 {
		out = append(out, fmt.Sprintf("a grace period of %v in place of %v", b.Grace.Duration, defaultGrace))
	}
	if b.LeaseGenerator {
		out = append(out, "leases renewed by a generator in place of kwok")
	}
	return strings.Join(out, ", ")
}

// DefaultRepeats is how often each arm is measured if a file does not say.
const DefaultRepeats = 5

// Workload is exactly one of its fields.
type Workload struct {
	Deployments  *Replicated `json:"deployments,omitempty"`
	StatefulSets *Replicated `json:"statefulSets,omitempty"`
	Jobs         *Jobs       `json:"jobs,omitempty"`
	DaemonSet    *DaemonSet  `json:"daemonSet,omitempty"`
	NodesDie     *NodesDie   `json:"nodesDie,omitempty"`
	Handover     *Handover   `json:"handover,omitempty"`
	Idle         *Idle       `json:"idle,omitempty"`
	Stalls       *Stalls     `json:"stalls,omitempty"`
}

// Replicated are objects of some pods each. They are made, and then all rolled at once.
type Replicated struct {
	Count    int   `json:"count"`
	Replicas int32 `json:"replicas"`
}

// Jobs are run to their end.
type Jobs struct {
	Count int   `json:"count"`
	Pods  int32 `json:"pods"`
}

// DaemonSet is made on all nodes. With Roll it is there already, and what is measured is a rolling update.
type DaemonSet struct {
	Roll           bool `json:"roll,omitempty"`
	MaxUnavailable int  `json:"maxUnavailable,omitempty"`
	// Churn is how many nodes leave while it is rolled, one after the other. Another joins for each.
	Churn int `json:"churn,omitempty"`
}

// NodesDie has a share of the nodes die at once, and after all are marked counts live reads for a time.
type NodesDie struct {
	Percent int             `json:"percent"`
	Observe metav1.Duration `json:"observe"`
}

// Handover kills the leader while it makes a DaemonSet on all nodes. A successor takes over, on an apiserver whose watch cache of
// pods lags behind: it stands still from before the DaemonSet is made. Clients list before they watch, as before WatchList.
type Handover struct {
	// Percent of the nodes have a pod when the leader is killed.
	Percent int `json:"percent"`
	// Lag is for how long the successor leads before the apiserver catches up.
	Lag metav1.Duration `json:"lag"`
}

// Idle has no work to do; what kube-controller-manager does by itself is measured for a time.
type Idle struct {
	For metav1.Duration `json:"for"`
}

// Stalls has watches stand still: they stay open and bring nothing. In each round those of resources that change all the time are
// held, and those of quiet ones that protected controllers read.
type Stalls struct {
	Rounds int `json:"rounds"`
}

// Effects of a fault.
const (
	// EffectHold keeps the events of a watch back; the watch stays open.
	EffectHold = "hold"
	// EffectDelay delays the events.
	EffectDelay = "delay"
)

// Fault lasts as long as the workload.
type Fault struct {
	Effect string `json:"effect"`
	// Resource is one of pods, nodes and leases.
	Resource string `json:"resource"`
	// Delay is how late events are with the effect delay.
	Delay metav1.Duration `json:"delay,omitzero"`
}

// Goal is a limit for the median of a figure on one arm: a value, or a share or an amount more than another arm's median.
type Goal struct {
	// Figure is the name of a figure, see package sample; Of the arm, empty for P.
	Figure string           `json:"figure"`
	Of     controlplane.Arm `json:"of,omitempty"`
	// AtMost is the limit if Against is empty.
	AtMost *float64 `json:"atMost,omitempty"`
	// Against is the arm to compare with. The limit is its median, more by Percent of it and by Extra.
	Against controlplane.Arm `json:"against,omitempty"`
	Percent float64          `json:"percent,omitempty"`
	Extra   float64          `json:"extra,omitempty"`
}

// Load reads files, and of a folder each file in it that ends in .yaml, in the order of their names. Names of benchmarks
// must be distinct.
func Load(paths ...string) ([]Benchmark, error) {
	var out []Benchmark
	from := map[string]string{}
	for _, path := range paths {
		files := []string{path}
		if info, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("benchmarks: %w", err)
		} else if info.IsDir() {
			if files, err = filepath.Glob(filepath.Join(path, "*.yaml")); err != nil || len(files) == 0 {
				return nil, cmp.Or(err, fmt.Errorf("benchmarks: there is no .yaml file in %s", path))
			}
		}
		for _, file := range files {
			b, err := read(file)
			if err != nil {
				return nil, err
			}
			if other, ok := from[b.Name]; ok {
				return nil, fmt.Errorf("%s: the name %s is that of %s, too", file, b.Name, other)
			}
			from[b.Name] = file
			out = append(out, b)
		}
	}
	return out, nil
}

func read(file string) (Benchmark, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Benchmark{}, fmt.Errorf("benchmarks: %w", err)
	}
	b, err := Decode(data)
	if err != nil {
		return Benchmark{}, fmt.Errorf("%s: %w", file, err)
	}
	return b, nil
}

// Decode reads one file's content and sets the defaults.
func Decode(data []byte) (Benchmark, error) {
	var b Benchmark
	if err := yaml.UnmarshalStrict(data, &b); err != nil {
		return b, errors.New(oneLine(err.Error()))
	}
	if b.Repeats == 0 {
		b.Repeats = DefaultRepeats
	}
	if len(b.Arms) == 0 {
		b.Arms = controlplane.Arms()
	}
	for i := range b.Goals {
		b.Goals[i].Of = cmp.Or(b.Goals[i].Of, controlplane.ArmP)
	}
	return b, b.Validate()
}

// oneLine takes the prefixes and line breaks of the YAML library out of its message.
func oneLine(message string) string {
	message = strings.NewReplacer("error unmarshaling JSON: ", "", "while decoding JSON: ", "", "error converting YAML to JSON: ", "", "json: ", "").Replace(message)
	return strings.Join(strings.Fields(message), " ")
}

var namePattern = regexp.MustCompile("^[a-z0-9]+(-[a-z0-9]+)*$")

// resources are those whose watches a fault can be put on.
var resources = []string{"pods", "nodes", "leases"}

// Validate returns the first mistake.
func (b Benchmark) Validate() error {
	switch {
	case !namePattern.MatchString(b.Name):
		return fmt.Errorf("name: %q is not made of lower case letters, digits and dashes", b.Name)
	case b.Title == "":
		return errors.New("title: missing")
	case b.Nodes < 1:
		return fmt.Errorf("nodes: %d, at least 1 is needed", b.Nodes)
	case b.QPS < 1:
		return fmt.Errorf("qps: %d, at least 1 is needed", b.QPS)
	case b.Repeats < 1:
		return fmt.Errorf("repeats: %d, at least 1 is needed", b.Repeats)
	case b.Lease.Duration < 0 || b.Grace.Duration < 0:
		return errors.New("lease and grace: must not be negative")
	case b.Grace.Duration > 0 && b.Grace.Duration < cmp.Or(b.Lease.Duration, defaultLease)/2:
		return fmt.Errorf("grace: %v is less than two renewals of a lease of %v", b.Grace.Duration, cmp.Or(b.Lease.Duration, defaultLease))
	}
	for i, arm := range b.Arms {
		if !slices.Contains(controlplane.Arms(), arm) {
			return fmt.Errorf("arms: there is no arm %q, only %v", arm, controlplane.Arms())
		}
		if slices.Contains(b.Arms[:i], arm) {
			return fmt.Errorf("arms: %s is there twice", arm)
		}
	}
	if err := b.Workload.validate(); err != nil {
		return fmt.Errorf("workload: %w", err)
	}
	if err := b.Fault.validate(); err != nil {
		return fmt.Errorf("fault: %w", err)
	}
	switch {
	case b.Fault != nil && b.Workload.Handover != nil:
		return errors.New("fault: a handover has a fault of its own")
	case b.Fault != nil && b.Workload.Stalls != nil:
		return errors.New("fault: stalls are faults themselves")
	case b.Workload.Stalls != nil && !slices.Equal(b.Arms, []controlplane.Arm{controlplane.ArmP}):
		return errors.New("arms: of stalls there is only P, as upstream does not say how old its caches are")
	}
	for i, goal := range b.Goals {
		if err := goal.validate(b); err != nil {
			return fmt.Errorf("goals[%d]: %w", i, err)
		}
	}
	return nil
}

func (w Workload) validate() error {
	n := 0
	for _, set := range []bool{w.Deployments != nil, w.StatefulSets != nil, w.Jobs != nil, w.DaemonSet != nil, w.NodesDie != nil, w.Handover != nil, w.Idle != nil, w.Stalls != nil} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		return fmt.Errorf("exactly one of deployments, statefulSets, jobs, daemonSet, nodesDie, handover, idle and stalls is needed, not %d", n)
	case w.Deployments != nil && !w.Deployments.some():
		return errors.New("deployments: count and replicas must be 1 or more")
	case w.StatefulSets != nil && !w.StatefulSets.some():
		return errors.New("statefulSets: count and replicas must be 1 or more")
	case w.Jobs != nil && (w.Jobs.Count < 1 || w.Jobs.Pods < 1):
		return errors.New("jobs: count and pods must be 1 or more")
	case w.DaemonSet != nil && w.DaemonSet.MaxUnavailable < 0:
		return errors.New("daemonSet: maxUnavailable must not be negative")
	case w.DaemonSet != nil && w.DaemonSet.Churn != 0 && (w.DaemonSet.Churn < 0 || !w.DaemonSet.Roll):
		return errors.New("daemonSet: churn must not be negative, and goes with roll")
	case w.NodesDie != nil && (w.NodesDie.Percent < 1 || w.NodesDie.Percent > 100):
		return fmt.Errorf("nodesDie: percent: %d is not from 1 to 100", w.NodesDie.Percent)
	case w.NodesDie != nil && w.NodesDie.Observe.Duration <= 0:
		return errors.New("nodesDie: observe: how long live reads are counted is missing")
	case w.Handover != nil && (w.Handover.Percent < 1 || w.Handover.Percent > 99):
		return fmt.Errorf("handover: percent: %d is not from 1 to 99", w.Handover.Percent)
	case w.Handover != nil && w.Handover.Lag.Duration <= 0:
		return errors.New("handover: lag: how long is missing")
	case w.Idle != nil && w.Idle.For.Duration <= 0:
		return errors.New("idle: for: how long is missing")
	case w.Stalls != nil && w.Stalls.Rounds < 1:
		return errors.New("stalls: rounds must be 1 or more")
	}
	return nil
}

func (r Replicated) some() bool { return r.Count > 0 && r.Replicas > 0 }

func (f *Fault) validate() error {
	switch {
	case f == nil:
		return nil
	case f.Effect != EffectHold && f.Effect != EffectDelay:
		return fmt.Errorf("effect: there is no %q, only %s and %s", f.Effect, EffectHold, EffectDelay)
	case !slices.Contains(resources, f.Resource):
		return fmt.Errorf("resource: %q is none of %v", f.Resource, resources)
	case (f.Effect == EffectDelay) != (f.Delay.Duration > 0):
		return errors.New("delay: goes with effect delay, and only with it")
	}
	return nil
}

// Endless says that the workload has no end state.
func (b Benchmark) Endless() bool { return b.Workload.Idle != nil || b.Workload.Stalls != nil }

// Calm says that nothing is done to kube-controller-manager, so that no cache is stale for long.
func (b Benchmark) Calm() bool {
	return b.Fault == nil && b.Workload.Handover == nil && b.Workload.Stalls == nil
}

// yields says whether every run of the benchmark has a figure.
func (b Benchmark) yields(figure string) bool {
	switch f, ok := sample.Find(figure); {
	case !ok, f.Optional:
		return false
	case figure == sample.End:
		return !b.Endless()
	case figure == sample.FalseAlarms:
		return b.Calm()
	case slices.Contains([]string{sample.BusyP50, sample.BusyP99, sample.QuietP50, sample.QuietP99}, figure):
		return b.Workload.Stalls != nil
	case figure == sample.DetectP50, figure == sample.DetectP99:
		return b.Workload.NodesDie != nil
	case figure == sample.FirstRight:
		return b.Workload.Handover != nil
	}
	return true
}

func (g Goal) validate(b Benchmark) error {
	switch {
	case !b.yields(g.Figure):
		return fmt.Errorf("figure: this workload has no figure %q", g.Figure)
	case g.Figure == sample.FalseAlarms && g.Of != controlplane.ArmP:
		return fmt.Errorf("figure: arm %s has no figure %q", g.Of, g.Figure)
	case !slices.Contains(b.Arms, g.Of):
		return fmt.Errorf("of: arm %s is not measured", g.Of)
	case (g.AtMost != nil) == (g.Against != ""):
		return errors.New("one of atMost and against is needed")
	case g.AtMost != nil && (g.Percent != 0 || g.Extra != 0):
		return errors.New("percent and extra go with against")
	case g.Against != "" && (g.Against == g.Of || !slices.Contains(b.Arms, g.Against)):
		return fmt.Errorf("against: arm %s is not another one that is measured", g.Against)
	}
	return nil
}
