// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/clock"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

// podGCOwner stands for all pods that podgc deletes.
var podGCOwner = model.Owner{Kind: schedule.PodGCValue}

// judgedOwner is whose reconcile a request is of: all that podgc deletes is of one pass, one pod after the other.
func judgedOwner(r *model.Request) model.Owner {
	if byPodGC(r) {
		return podGCOwner
	}
	return r.Owner
}

func byPodGC(r *model.Request) bool { return strings.Contains(r.Agent, arms.PodGCClient) }

// clearsEviction says that disruption takes from a pod that it is to be evicted: where ours spares a pod that stock evicts, that
// follows, and is tried again with upstream's backoff.
func clearsEviction(r *model.Request) bool {
	return r.Resource == model.Pods && strings.Contains(r.Agent, arms.DisruptionClient)
}

// values is how those of a schedule stand.
type values struct {
	of    []schedule.Value
	ended int
	// sent is when the request was sent that the server carries out; zero: nobody's.
	sent time.Time
	due  map[schedule.Value][]due
	// over is when there were last more ended pods than podgc leaves; gone and out, when a node was last gone, or out of service.
	over               time.Time
	gone, out          map[string]time.Time
	withheld, overdone map[schedule.Value]time.Time
}

// due is what may be published from a time on: no less than low, no more than high.
type due struct {
	at        time.Time
	low, high int
	// healthy are a budget's pods that are ready, needed how many have to stay.
	healthy, needed int
}

func newValues(s schedule.Schedule) values {
	return values{
		of: s.Values(), ended: s.Ended, due: map[schedule.Value][]due{}, gone: map[string]time.Time{}, out: map[string]time.Time{},
		withheld: map[schedule.Value]time.Time{}, overdone: map[schedule.Value]time.Time{},
	}
}

// concerns are the resources on which some value depends.
var concerns = []*model.Resource{model.Pods, model.Nodes, model.Widgets, model.Quotas, model.Budgets, model.ReplicaSets, model.StatefulSets, model.RCs}

// judgeValues notes how the values stand after a change, and judges one that a controller has written.
func (j *Judge) judgeValues(truth model.Truth, r *model.Resource, old, now model.Object, at time.Time) {
	v := &j.values
	if len(v.of) == 0 || !slices.Contains(concerns, r) || r == model.Nodes && onlyBeat(old, now) {
		return
	}
	if node, ok := old.(*corev1.Node); ok && node != nil {
		v.node(node, at)
	}
	if node, ok := now.(*corev1.Node); ok && node != nil {
		if old == nil {
			v.gone[node.Name] = at
		}
		v.node(node, at)
	}
	for _, value := range v.of {
		if !isThere(truth, value) {
			continue
		}
		d := dueOf(truth, value, v.ended)
		d.at = at
		series := v.due[value]
		var was due
		if len(series) > 0 {
			was = series[len(series)-1]
		}
		if len(series) == 0 || was.low != d.low || was.high != d.high || was.healthy != d.healthy || was.needed != d.needed {
			v.due[value] = append(series, d)
		}
		// They may have been too many until this very change.
		if value.Of == "ended" && (d.high > 0 || was.high > 0) {
			v.over = at
		}
		published, known := publishedOf(truth, value)
		if !v.sent.IsZero() {
			j.judgeWrite(value, r, old, now, at)
		}
		// What a quota has used is room withheld, what a budget allows is given.
		withheld, overdone := published > d.high, published < d.low
		switch value.Kind {
		case schedule.BudgetValue:
			budget := truth.Get(model.Budgets, value.Namespace, value.Name).(*policyv1.PodDisruptionBudget)
			withheld, overdone = published < d.low-evictedByName(truth, budget), published > d.high
		case schedule.PodGCValue:
			withheld, overdone = d.high > 0, false
		}
		turn(v.withheld, j.record.Withheld, value, known && withheld, at, j.began)
		turn(v.overdone, j.record.Overdone, value, known && overdone, at, j.began)
	}
}

// onlyBeat says that nothing of a node has changed that podgc looks at.
func onlyBeat(old, now model.Object) bool {
	was, _ := old.(*corev1.Node)
	is, _ := now.(*corev1.Node)
	return was != nil && is != nil && len(was.Spec.Taints) == len(is.Spec.Taints) && isReady(was) == isReady(is)
}

// node notes that a node is out of service.
func (v *values) node(n *corev1.Node, at time.Time) {
	if outOfService(n) {
		v.out[n.Name] = at
	}
}

func outOfService(n *corev1.Node) bool {
	return !isReady(n) && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// judgeWrite judges a quota's value that falls, or a budget's that rises, by the server's state at any time since the oldest that the write
// may have been decided on.
func (j *Judge) judgeWrite(value schedule.Value, r *model.Resource, old, now model.Object, at time.Time) {
	if old == nil || now == nil || now.GetNamespace() != value.Namespace || now.GetName() != value.Name || r.Kind != value.Kind {
		return
	}
	since := j.values.sent.Add(-j.decided - provenBefore)
	low, high := math.MaxInt, math.MinInt
	series := j.values.due[value]
	for i, d := range series {
		if i+1 < len(series) && series[i+1].at.Before(since) {
			continue
		}
		low, high = min(low, d.low), max(high, d.high, d.healthy-series[len(series)-1].needed) // The pods may be older than the budget.
	}
	late := at.Sub(j.began).Round(time.Millisecond)
	switch value.Kind {
	case schedule.QuotaValue:
		before, after := old.(*corev1.ResourceQuota).Status.Used, now.(*corev1.ResourceQuota).Status.Used
		was, known := before[corev1.ResourceName(value.Of)]
		is, published := after[corev1.ResourceName(value.Of)]
		if n := int(is.Value()); published && n < low && (!known || is.Cmp(was) < 0) {
			j.record.Room[value.Namespace] = true
			j.unjustified(quotaRule, "at %s %s falls from %s to %d, in use are %d", late, value, was.String(), n, low)
		}
	case schedule.BudgetValue:
		was, is := old.(*policyv1.PodDisruptionBudget).Status, now.(*policyv1.PodDisruptionBudget).Status
		n := int(is.DisruptionsAllowed)
		if n > high && (is.DisruptionsAllowed > was.DisruptionsAllowed || is.ObservedGeneration > was.ObservedGeneration) {
			j.unjustified(budgetRule, "at %s %s rises from %d to %d, harmless are %d", late, value, was.DisruptionsAllowed, n, high)
		}
	}
}

const (
	// quotaRule is broken by a value of a quota that falls below what is in use.
	quotaRule = "quota"
	// budgetRule is broken by a budget that allows more evictions than do no harm.
	budgetRule = "budget"
)

// podGCRule is broken by a deletion for which podgc had no reason.
const podGCRule = "podgc"

// judgePodGC judges a deletion by podgc.
func (j *Judge) judgePodGC(truth model.Truth, r *model.Request, pod *corev1.Pod, since time.Time) {
	node, _ := truth.Get(model.Nodes, "", pod.Spec.NodeName).(*corev1.Node)
	switch {
	case hasEnded(pod) && (dueOf(truth, schedule.Value{Kind: schedule.PodGCValue, Of: "ended"}, j.values.ended).high > 0 || !j.values.over.Before(since)):
	case pod.Spec.NodeName != "" && (node == nil || !j.values.gone[pod.Spec.NodeName].Before(since)):
	case pod.DeletionTimestamp != nil && (pod.Spec.NodeName == "" || outOfService(node) || !j.values.out[pod.Spec.NodeName].Before(since)):
	default:
		j.record.Robbed[pod.Namespace] = true
		j.unjustified(podGCRule, "at %s pod %s/%s, %s on %s", r.Arrived.Sub(j.began).Round(time.Millisecond), pod.Namespace, pod.Name, pod.Status.Phase, pod.Spec.NodeName)
	}
}

func hasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// isThere says that what has the value was made.
func isThere(truth model.Truth, value schedule.Value) bool {
	switch value.Kind {
	case schedule.QuotaValue:
		return truth.Get(model.Quotas, value.Namespace, value.Name) != nil
	case schedule.BudgetValue:
		return truth.Get(model.Budgets, value.Namespace, value.Name) != nil
	}
	return true
}

// publishedOf is what a controller has published of a value, unless it has yet to.
func publishedOf(truth model.Truth, value schedule.Value) (int, bool) {
	switch value.Kind {
	case schedule.QuotaValue:
		quota := truth.Get(model.Quotas, value.Namespace, value.Name).(*corev1.ResourceQuota)
		used, known := quota.Status.Used[corev1.ResourceName(value.Of)]
		return int(used.Value()), known
	case schedule.BudgetValue:
		budget := truth.Get(model.Budgets, value.Namespace, value.Name).(*policyv1.PodDisruptionBudget)
		if budget.Status.ObservedGeneration != budget.Generation {
			return 0, true
		}
		return int(budget.Status.DisruptionsAllowed), true
	}
	return 0, true
}

// dueOf is what a value should be by the server's state; of podgc, how many pods it should delete.
func dueOf(truth model.Truth, value schedule.Value, ended int) due {
	switch {
	case value.Of == schedule.WidgetCount:
		n := 0
		for _, o := range truth.List(model.Widgets) {
			if o.GetNamespace() == value.Namespace {
				n++
			}
		}
		return due{low: n, high: n}
	case value.Kind == schedule.BudgetValue:
		healthy, needed := stands(truth, truth.Get(model.Budgets, value.Namespace, value.Name).(*policyv1.PodDisruptionBudget))
		n := max(0, healthy-needed)
		return due{low: n, high: n, healthy: healthy, needed: needed}
	}
	var d due
	for _, o := range truth.List(model.Pods) {
		p := o.(*corev1.Pod)
		switch {
		case value.Kind == schedule.QuotaValue && p.Namespace != value.Namespace:
		case value.Of == string(model.CountOf(model.Pods)):
			d.low++
			d.high++
		case value.Kind == schedule.QuotaValue:
			if core.QuotaV1Pod(p, clock.RealClock{}) {
				d.low++
			}
			if !hasEnded(p) {
				d.high++
			}
		case value.Of == "ended":
			if hasEnded(p) {
				d.high++
			}
		case p.Spec.NodeName == "":
		default:
			node, _ := truth.Get(model.Nodes, "", p.Spec.NodeName).(*corev1.Node)
			if value.Of == "on nodes that are gone" && node == nil || value.Of == "on nodes out of service" && node != nil && p.DeletionTimestamp != nil && outOfService(node) {
				d.high++
			}
		}
	}
	if value.Of == "ended" {
		d.high = max(0, d.high-ended)
	}
	return d
}

// stands is how many pods of a budget are ready, and how many have to be.
func stands(truth model.Truth, budget *policyv1.PodDisruptionBudget) (healthy, needed int) {
	expected := 0
	owners := map[model.Owner]bool{}
	for _, o := range truth.List(model.Pods) {
		p := o.(*corev1.Pod)
		if p.Namespace != budget.Namespace || p.Labels["app"] != budget.Spec.Selector.MatchLabels["app"] {
			continue
		}
		if p.DeletionTimestamp == nil && isReadyPod(p) {
			healthy++
		}
		if budget.Spec.MaxUnavailable == nil {
			expected++
		} else if ref := metav1.GetControllerOfNoCopy(p); ref != nil {
			owner := model.Owner{Kind: ref.Kind}
			owner.Namespace, owner.Name = p.Namespace, ref.Name
			if !owners[owner] {
				owners[owner] = true
				expected += scaleOf(truth, owner)
			}
		}
	}
	switch {
	case expected == 0:
		return healthy, healthy
	case budget.Spec.MaxUnavailable != nil:
		return healthy, max(0, expected-budget.Spec.MaxUnavailable.IntValue())
	}
	return healthy, budget.Spec.MinAvailable.IntValue()
}

// evictedByName is how many pods a budget takes for evicted because one of their names was, shortly before they were made. Upstream
// does so for 2 min where it sees the new one before it has forgotten the old one: chance decides on which arm.
func evictedByName(truth model.Truth, budget *policyv1.PodDisruptionBudget) (n int) {
	for name, at := range budget.Status.DisruptedPods {
		if p, ok := truth.Get(model.Pods, budget.Namespace, name).(*corev1.Pod); ok && p != nil && !p.CreationTimestamp.Before(&at) {
			n++
		}
	}
	return n
}

func isReadyPod(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

// scaleOf is how many pods an owner wants.
func scaleOf(truth model.Truth, owner model.Owner) int {
	for _, r := range []*model.Resource{model.ReplicaSets, model.StatefulSets, model.RCs} {
		if r.Kind != owner.Kind {
			continue
		}
		switch x := truth.Get(r, owner.Namespace, owner.Name).(type) {
		case *appsv1.ReplicaSet:
			return int(*x.Spec.Replicas)
		case *appsv1.StatefulSet:
			return int(*x.Spec.Replicas)
		case *corev1.ReplicationController:
			return int(*x.Spec.Replicas)
		}
	}
	return 0
}

// endValues ends what is open.
func (j *Judge) endValues(at time.Time) {
	for _, value := range j.values.of {
		leave(j.values.withheld, j.record.Withheld, value, at, j.began)
		leave(j.values.overdone, j.record.Overdone, value, at, j.began)
	}
}
