// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validate watches a run at its server, judges it by the server's truth, and compares the arms.
package validate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

// deletionRule is that a pod is only deleted if its owner has too many.
const deletionRule = "deletion"

// revisionsRule is broken by a pod of a Deployment that recreates, made beside one of another ReplicaSet.
const revisionsRule = "revisions"

// endpointRule is that of what a Service lacks.
const endpointRule = "endpoint"

// Violation is a rule that a run broke.
type Violation struct {
	Rule, Text string
}

func (v Violation) String() string { return v.Rule + ": " + v.Text }

// Span is a time during which something was not as it should be. Open is one that had no end.
type Span struct {
	From, For time.Duration
	Open      bool
}

// Record is what was seen of a run.
type Record struct {
	// Requests of an owner, by verb, resource and subresource.
	Requests map[model.Owner]map[string]int
	// Events are the writes of events about an object, by reason.
	Events map[model.Owner]map[string]int
	// Probes are the requests of the prover, by resource.
	Probes map[string]int
	// Untold is when an owner's status was not that of its pods; Undone, when the pods were not those of its spec, or
	// not ready; Excess, when it had pods that its spec did not ask for, and nobody had deleted them.
	Untold, Undone, Excess map[model.Owner][]Span
	// Backoff is when an owner's controller waited, as upstream's law wants it, before it tried again to make or delete a pod.
	Backoff map[model.Owner][]Span
	// Runs are the Jobs of a CronJob, when they were made by when they were due.
	Runs map[model.Owner]map[time.Duration]time.Duration
	// Digests are how the owners, their pods and their volume claims are at the end.
	Digests map[model.Owner]string
	// Unjustified are the destructive writes that nothing at the server called for.
	Unjustified []Violation
	// Robbed are the namespaces in which podgc deleted pods for which it had no reason: whoever a quota refuses has more room there then. And they are the
	// volumes that were detached without one, or too early: the next pod has them sooner.
	Robbed map[string]bool
	// Room are the namespaces in which a quota's value fell without a reason: whoever it refuses has more room there then.
	Room map[string]bool
	// Waits are those of our side at the end.
	Waits []string
	// Ages are the oldest published age of a cache that no fault touched, by resource, and how often it had none.
	Ages    map[string]time.Duration
	Unknown map[string]int
	// Withheld is when a value was lower than the server's state: no room where there was some, no eviction that would have done no
	// harm, or something that podgc had yet to delete. Overdone is when one was higher.
	Withheld, Overdone map[schedule.Value][]Span
	// Missing is when a Service lacked a pod that was ready on a node that was there, Stray when it had one that was not, or that it
	// does not select.
	Missing, Stray map[model.Owner][]Span
	// Garbage is when a family had an object that referred to an owner that was gone, Lingering when one of its owners waited for its
	// dependents to be deleted or orphaned. Collecting are the garbage collector's requests, by verb; Polls, how often it may have asked for a
	// dependent's owner that it had not seen yet.
	Garbage, Lingering map[string][]Span
	Collecting         map[string]int
	Polls              int
	// Orphaned are the families of which something was deleted that was to be left behind, and could have been seen.
	Orphaned map[string]bool
	// Lacking is when a pod lacked a claim of its own, or the reservation of an allocated one; Kept, when a claim was reserved for a pod
	// that needs none any more, or was one's own, by the pod or the shared claim. Claiming are the requests of their controller.
	Lacking, Kept map[string][]Span
	Claiming      map[string]int
	// Claims are how the pods and their claims are at the end.
	Claims string
	// Few is when the workload of an autoscaler had fewer replicas than its load asks for, or than its least; Many, when it had more. Scaling are the
	// requests of their controller.
	Few, Many map[string][]Span
	Scaling   map[string]int
	// Detached is when a pod lacked its volume, by the volume, Attached when one was attached to a node where no pod used it. Attaching are the requests of
	// the attach/detach controller, Volumes how the volumes are at the end.
	Detached, Attached map[string][]Span
	Attaching          map[string]int
	Volumes            string
	// Replicas are those of the workloads of autoscalers at the end, Targets how these are, and Unproven the autoscalers that still wait for a proof.
	Replicas map[string]int32
	Targets  map[model.Owner]string
	Unproven []string
}

// Judge makes the record of a run.
type Judge struct {
	// decided is how long before it was sent a write may have been decided.
	decided time.Duration
	// refusals are the steps of the schedule that have reads of a resource refused.
	refusals []schedule.Step

	mu     sync.Mutex
	began  time.Time
	owners []model.Owner
	record Record

	untold, undone, excess map[model.Owner]time.Time // since when
	// surplus is when a deletion of a pod was last called for, tainted when a node last had a taint that pods do not
	// tolerate, beats when a node renewed its lease.
	surplus map[string]time.Time
	was     map[model.Owner]state
	// filled is when a ReplicaSet was told to have pods, which it was to have none of before.
	filled  map[types.UID]time.Time
	tainted map[string]time.Time
	beats   map[string][]time.Time
	// evicting is when the first write of a pod's eviction was sent; slow are an owner's slow requests.
	evicting map[string]time.Time
	slow     map[model.Owner]chain
	failures map[model.Owner]int // to make a pod, one after the other
	values   values
	// suspended is since when a CronJob is.
	suspended map[string]time.Time
	// gone is since when the CronJob of the UID is.
	gone map[types.UID]time.Time
	// throttled is since when what makes a CronJob's Jobs is answered with 429.
	throttled map[model.Owner]time.Time
	// own are the pods that their owners' controllers have deleted, taken says when others have taken pods away.
	own      map[types.UID]bool
	taken    map[model.Owner][]time.Time
	services services
	// collections are for histories with families alone.
	collections collections
	claims      claims
	scaling     scaling
	volumes     volumes
}

// New makes a judge of a run that begins now.
func New(s schedule.Schedule) *Judge {
	decided := slack
	if s.QPS > 0 {
		decided += time.Duration(atLimiter) * time.Second / time.Duration(s.QPS)
	}
	var refusals []schedule.Step
	for _, step := range s.Steps {
		switch step.Action {
		case schedule.Throttle, schedule.Broken:
			refusals = append(refusals, step)
		case schedule.Late:
			// A deletion that can be proven for no later moment is decided on what the server had when it was first put off.
			decided = max(decided, slack+step.Delay+retryStale)
		}
	}
	return &Judge{
		began: time.Now(), owners: append(Owners(s), Targets(s)...), decided: decided, refusals: refusals, values: newValues(s),
		record: Record{Requests: map[model.Owner]map[string]int{}, Events: map[model.Owner]map[string]int{}, Probes: map[string]int{}, Untold: map[model.Owner][]Span{}, Undone: map[model.Owner][]Span{}, Excess: map[model.Owner][]Span{}, Backoff: map[model.Owner][]Span{}, Runs: map[model.Owner]map[time.Duration]time.Duration{},
			Ages: map[string]time.Duration{}, Unknown: map[string]int{}, Withheld: map[schedule.Value][]Span{}, Overdone: map[schedule.Value][]Span{},
			Missing: map[model.Owner][]Span{}, Stray: map[model.Owner][]Span{}, Garbage: map[string][]Span{}, Lingering: map[string][]Span{}, Collecting: map[string]int{}, Orphaned: map[string]bool{},
			Lacking: map[string][]Span{}, Kept: map[string][]Span{}, Claiming: map[string]int{},
			Few: map[string][]Span{}, Many: map[string][]Span{}, Scaling: map[string]int{}, Targets: map[model.Owner]string{},
			Detached: map[string][]Span{}, Attached: map[string][]Span{}, Attaching: map[string]int{}, Robbed: map[string]bool{}, Room: map[string]bool{}},
		volumes:     volumes{volumes: s.Volumes, mounted: map[mount]time.Time{}, lacking: map[string]time.Time{}, spare: map[string]time.Time{}, slow: map[string]chain{}},
		scaling:     scaling{schedule: s, looked: time.Now(), stands: map[string]scaler{}, wants: map[string][]wanted{}, looks: map[string]look{}, few: map[string]time.Time{}, many: map[string]time.Time{}},
		claims:      claims{claimers: s.Claimers, lacking: map[string]time.Time{}, kept: map[string]time.Time{}},
		collections: collections{schedule: s, families: s.Families, made: map[types.UID]time.Time{}, polls: map[types.UID]int{}, garbage: map[string]time.Time{}, lingering: map[string]time.Time{}, orphans: map[types.UID]map[types.UID]bool{}, blocking: map[types.UID]map[types.UID]bool{}},
		services:    services{schedule: s, missing: map[model.Owner]time.Time{}, stray: map[model.Owner]time.Time{}, ready: map[types.UID]time.Time{}, gone: map[string]bool{}, lacked: map[model.Owner]map[types.UID]time.Time{}},
		untold:      map[model.Owner]time.Time{}, undone: map[model.Owner]time.Time{}, excess: map[model.Owner]time.Time{}, surplus: map[string]time.Time{}, was: map[model.Owner]state{},
		tainted: map[string]time.Time{}, beats: map[string][]time.Time{}, evicting: map[string]time.Time{}, slow: map[model.Owner]chain{}, failures: map[model.Owner]int{}, suspended: map[string]time.Time{}, gone: map[types.UID]time.Time{}, filled: map[types.UID]time.Time{}, throttled: map[model.Owner]time.Time{},
		own: map[types.UID]bool{}, taken: map[model.Owner][]time.Time{},
	}
}

// roomier says that harm has given whoever a quota refuses in the namespace more room.
func (r Record) roomier(namespace string) bool { return r.Robbed[namespace] || r.Room[namespace] }

// Observe is to be told of every request, before and after.
func (j *Judge) Observe(truth model.Truth, r *model.Request, done bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !done {
		j.values.sent = r.Sent
		j.claims.judged = byClaims(r) && r.Write()
		j.scaling.judged = byScaler(r) && r.Write()
		switch {
		case byCollector(r):
			j.judgeCollection(truth, r)
		case byAttacher(r):
			j.judgeDetachment(truth, r)
		case r.Resource == model.Pods && len(j.collections.families) == 0:
			j.judgePod(truth, r)
		}
		return
	}
	j.values.sent = time.Time{}
	j.claims.judged, j.scaling.judged = false, false
	if model.Probe(r) {
		j.record.Probes[r.GroupVersionResource.Resource]++
		return
	}
	if r.Resource == model.Events {
		return // Changed counts them.
	}
	if byCollector(r) {
		j.record.Collecting[r.Verb]++
		j.observePoll(truth, r)
		return
	}
	if byClaims(r) {
		j.record.Claiming[what(r)]++
		return
	}
	if byAttacher(r) {
		j.observeAttacher(r)
		return
	}
	if byScaler(r) {
		j.observeScaler(r)
		j.record.Scaling[what(r)]++
		return
	}
	j.looksUp(r)
	j.throttle(r)
	owner := judgedOwner(r)
	j.slow[owner] = j.slow[owner].with(r)
	j.backoff(r)
	if clearsEviction(r) || !r.Write() || owner.Name == "" && owner != podGCOwner {
		return
	}
	of := j.record.Requests[owner]
	if of == nil {
		of = map[string]int{}
		j.record.Requests[owner] = of
	}
	of[what(r)]++
}

// what is what a request does.
func what(r *model.Request) string {
	return strings.TrimSuffix(r.Verb+" "+r.GroupVersionResource.Resource+"/"+r.Subresource, "/")
}

// Changed is to be told of every change.
func (j *Judge) Changed(truth model.Truth, r *model.Resource, old, now model.Object) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := time.Now()
	switch {
	case r == model.Leases && now != nil:
		j.beats[now.GetName()] = append(j.beats[now.GetName()], at)
	case r == model.Nodes && now != nil:
		j.node(old, now.(*corev1.Node), at)
	case r == model.Events && now != nil:
		j.event(now.(*corev1.Event))
	case r == model.Pods:
		j.pod(old, now, at)
	case r == model.ReplicaSets && now != nil && wants(now) > 0 && wants(old) == 0:
		j.filled[now.GetUID()] = at
	}
	j.judgeRun(truth, r, old, now, at)
	j.judgeServices(truth, r, old, now, at)
	j.judgeFamilies(truth, r, old, now, at)
	j.judgeClaims(truth, r, old, now, at)
	j.judgeScaling(truth, r, old, now, at)
	j.judgeVolumes(truth, r, now, at)
	j.judgeValues(truth, r, old, now, at)
	if r == model.Events || r == model.Leases || r == model.Widgets || r == model.Quotas || r == model.Budgets || r == model.Services || r == model.Slices || r == model.Nodes && sameForPods(old, now) {
		return
	}
	for _, o := range j.owners {
		if r == model.Pods || r == model.Nodes && o.Kind == "DaemonSet" || r == model.ReplicaSets && o.Kind == "Deployment" || r.Kind == o.Kind {
			j.look(truth, o, at)
		}
		if r == model.Pods && now != nil && old == nil {
			j.judgeRevisions(truth, o, now, at)
		}
	}
}

func (j *Judge) event(e *corev1.Event) {
	about := model.Owner{Kind: e.InvolvedObject.Kind, NamespacedName: types.NamespacedName{Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name}}
	of := j.record.Events[about]
	if of == nil {
		of = map[string]int{}
		j.record.Events[about] = of
	}
	of[e.Reason]++
}

// wants is how many pods a ReplicaSet is to have; none if there is no such set.
func wants(object model.Object) int32 {
	if rs, ok := object.(*appsv1.ReplicaSet); ok && rs != nil {
		return *rs.Spec.Replicas
	}
	return 0
}

// sameForPods says that the same pods belong on a node as before.
func sameForPods(old, now model.Object) bool {
	was, _ := old.(*corev1.Node)
	is, _ := now.(*corev1.Node)
	return was != nil && is != nil && maps.Equal(was.Labels, is.Labels) && len(was.Spec.Taints) == 0 && len(is.Spec.Taints) == 0
}

// look notes how an owner stands now.
func (j *Judge) look(truth model.Truth, o model.Owner, at time.Time) {
	s := stateOf(truth, o)
	for name, surplus := range j.was[o].surplus {
		if surplus {
			j.surplus[name] = at
		}
	}
	for name, surplus := range s.surplus {
		if surplus {
			j.surplus[name] = at
		}
	}
	j.was[o] = s
	turn(j.untold, j.record.Untold, o, !s.told && !s.gone, at, j.began)
	turn(j.undone, j.record.Undone, o, !s.done && !s.gone, at, j.began)
	turn(j.excess, j.record.Excess, o, s.excess && !s.gone, at, j.began)
}

// turn begins a span, or ends it.
func turn[K comparable](since map[K]time.Time, spans map[K][]Span, o K, bad bool, at, began time.Time) {
	from, open := since[o]
	switch {
	case bad && !open:
		since[o] = at
	case !bad && open:
		delete(since, o)
		spans[o] = append(spans[o], Span{From: from.Sub(began), For: at.Sub(from)})
	}
}

// leave ends a span that is open at the end of the run.
func leave[K comparable](since map[K]time.Time, spans map[K][]Span, o K, at, began time.Time) {
	if from, open := since[o]; open {
		spans[o] = append(spans[o], Span{From: from.Sub(began), For: at.Sub(from), Open: true})
	}
}

// judgeRevisions judges a pod that was made of a Deployment that recreates. Pods of another ReplicaSet that are no older than proofs may be
// do not count, nor those that were made after the pod's own ReplicaSet was told to have pods: their controller had decided on them before.
func (j *Judge) judgeRevisions(truth model.Truth, o model.Owner, made model.Object, at time.Time) {
	d, ok := truth.Get(model.Deployments, o.Namespace, o.Name).(*appsv1.Deployment)
	ref := metav1.GetControllerOfNoCopy(made)
	if !ok || o.Kind != "Deployment" || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || ref == nil {
		return
	}
	sets := truth.Owned(model.ReplicaSets, o)
	if !slices.ContainsFunc(sets, func(rs model.Object) bool { return rs.GetUID() == ref.UID }) ||
		made.(*corev1.Pod).Spec.Containers[0].Image != d.Spec.Template.Spec.Containers[0].Image {
		return
	}
	for _, rs := range sets {
		for _, p := range podsOf(truth, rs) {
			if rs.GetUID() != ref.UID && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed &&
				at.Sub(p.CreationTimestamp.Time) > proofAge && p.CreationTimestamp.Add(time.Second).Before(j.filled[ref.UID]) { // It has whole seconds.
				j.unjustified(revisionsRule, "at %s pod %s of %s beside %s, made %s before", at.Sub(j.began).Round(time.Millisecond), made.GetName(), o, p.Name, at.Sub(p.CreationTimestamp.Time))
				return
			}
		}
	}
}

const (
	// proofAge is for proofs of what a Deployment has, and the pods that are made by them.
	proofAge = 10 * time.Second
	// slack is for a decision made shortly before the state changed.
	slack = time.Second
	// retryStale is the longest until a deletion is tried again that a stale cache has put off.
	retryStale = 5 * time.Second
	// atLimiter is how many requests of one client may wait for its rate limiter: what they do was decided before that, and
	// is sent after it.
	atLimiter = 10
	// evictionTime is how long the two writes of an eviction may take.
	evictionTime = time.Minute
)

// judgePod judges the deletion of a pod by the server's state, at any time since it was sent; an eviction, since its
// first write was.
func (j *Judge) judgePod(truth model.Truth, r *model.Request) {
	evicts := strings.Contains(r.Agent, "node-controller")
	if evicts && r.Verb == "patch" {
		if at, ok := j.evicting[r.Name]; !ok || r.Sent.Sub(at) > evictionTime {
			j.evicting[r.Name] = r.Sent
		}
	}
	if r.Verb != "delete" {
		return
	}
	object := truth.Get(model.Pods, r.Namespace, r.Name)
	if object == nil || !r.Deletes(object) {
		return
	}
	pod := object.(*corev1.Pod)
	since := r.Sent.Add(-j.decided)
	if c := j.slow[judgedOwner(r)]; r.Sent.Sub(c.end) < slack {
		since = c.start.Add(-j.decided)
	}
	if byPodGC(r) {
		j.judgePodGC(truth, r, pod, since)
		return
	}
	late := r.Arrived.Sub(j.began).Round(time.Millisecond)
	if evicts {
		if at, ok := j.evicting[r.Name]; ok && r.Sent.Sub(at) <= evictionTime {
			since = at.Add(-j.decided)
		}
		if !tainted(truth, pod.Spec.NodeName) && j.tainted[pod.Spec.NodeName].Before(since) {
			j.unjustified("eviction", "at %s pod %s of %s on %s, which has no taint", late, r.Name, r.Owner, pod.Spec.NodeName)
		}
		return
	}
	j.own[pod.UID] = true
	if s := stateOf(truth, r.Owner); !s.gone && !s.surplus[r.Name] && j.surplus[r.Name].Before(since) && !(s.tooMany != nil && s.tooMany(j.takenAway(r.Owner, since))) {
		j.unjustified(deletionRule, "at %s pod %s of %s, which is not surplus", late, r.Name, r.Owner)
	}
}

// takenAway is how many pods of an owner others have taken away since then: a scale-down that began before need not know of them.
func (j *Judge) takenAway(owner model.Owner, since time.Time) (n int) {
	for _, at := range j.taken[owner] {
		if !at.Before(since) {
			n++
		}
	}
	return n
}

// pod notes a pod that somebody else than its owner's controller takes away.
func (j *Judge) pod(old, now model.Object, at time.Time) {
	was, _ := old.(*corev1.Pod)
	is, _ := now.(*corev1.Pod)
	if was == nil || !active(was) || is != nil && active(is) || j.own[was.UID] {
		return
	}
	if ref := metav1.GetControllerOfNoCopy(was); ref != nil {
		owner := model.Owner{Kind: ref.Kind, NamespacedName: types.NamespacedName{Namespace: was.Namespace, Name: ref.Name}}
		j.taken[owner] = append(j.taken[owner], at)
	}
}

// chain is slow requests of one owner, each sent when the last had been answered: one reconcile, perhaps, which decides
// before the first what it does after the last.
type chain struct{ start, end time.Time }

func (c chain) with(r *model.Request) chain {
	now := time.Now()
	if now.Sub(r.Sent) < slack {
		return c
	}
	if r.Sent.Sub(c.end) > slack {
		c.start = r.Sent
	}
	c.end = now
	return c
}

func tainted(truth model.Truth, node string) bool {
	n, ok := truth.Get(model.Nodes, "", node).(*corev1.Node)
	return !ok || noExecute(n)
}

func noExecute(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute })
}

// node judges what becomes of a node.
func (j *Judge) node(old model.Object, now *corev1.Node, at time.Time) {
	was, _ := old.(*corev1.Node)
	if was != nil && noExecute(was) || noExecute(now) {
		j.tainted[now.Name] = at
	}
	if was == nil || !isReady(was) || isReady(now) {
		return
	}
	sent, beat := at, j.began
	if !j.values.sent.IsZero() {
		sent = j.values.sent
	}
	for _, renewed := range j.beats[now.Name] {
		if !renewed.After(sent) {
			beat = renewed
		}
	}
	if silent := sent.Sub(beat); silent < arms.Grace-slack {
		j.unjustified("node", "at %s %s is marked not ready, whose lease was renewed %s before", at.Sub(j.began).Round(time.Millisecond), now.Name, silent)
	}
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (j *Judge) unjustified(rule, format string, args ...any) {
	j.record.Unjustified = append(j.record.Unjustified, Violation{rule, fmt.Sprintf(format, args...)})
}

// Age notes what is published of a cache that no fault touches. known is false if nothing is.
func (j *Judge) Age(resource string, age time.Duration, known bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record.Ages[resource] = max(j.record.Ages[resource], age)
	if !known {
		j.record.Unknown[resource]++
	}
}

// Digest notes how the owners are.
func (j *Judge) Digest(truth model.Truth) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record.Digests = map[model.Owner]string{}
	for _, o := range Owners(j.scaling.schedule) {
		j.record.Digests[o] = digest(truth, o)
	}
	j.digestScalers(truth)
	j.record.Claims = j.claims.digest(truth)
	j.record.Volumes = j.volumes.digest(truth)
}

// End ends the run and returns its record.
func (j *Judge) End(waits []string) Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := time.Now()
	for _, o := range j.owners {
		leave(j.untold, j.record.Untold, o, at, j.began)
		leave(j.undone, j.record.Undone, o, at, j.began)
		leave(j.excess, j.record.Excess, o, at, j.began)
	}
	j.endValues(at)
	j.endServices(at)
	j.endFamilies(at)
	j.endClaims(at)
	j.endScaling(at)
	j.endVolumes(at)
	j.record.Waits = waits
	return j.record
}
