// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// The rules by which the controller of autoscalers is judged.
const (
	// Lowered: replicas were lowered to fewer than upstream wants by the server's pods, and than the load tolerates.
	Lowered = "lowered"
	// Below and Above: replicas were lowered to fewer than the autoscaler's limit, or to more.
	Below, Above = "below the least", "above the most"
	// Raised: they were raised to more than it, which upstream's cache did not show. No proof is asked for that.
	Raised = "raised above the most"
)

const (
	// perScaler requests of one kind, besides a quarter of stock's.
	perScaler = 10
	// raiseMore is for how much longer, each time, a workload may have too few replicas, or too many, besides the length of the faults, in which lower ones
	// wait for a proof: an autoscaler is looked at once in a period, and chance decides when.
	raiseMore = arms.AutoscalerPeriod + moreMost
	// outside is by which part of the load replicas must be too few or too many: upstream counts in percent.
	outside = arms.Tolerance + 0.02
	// notProvenFresh is the reason of the condition while replicas are not lowered.
	notProvenFresh = "CacheNotProvenFresh"
	// How the digest of a workload begins, and that of one whose pods change at the end.
	doneIs, notDone = "done: ", doneIs + "false"
)

// scaler is how an autoscaler stands at the server.
type scaler struct {
	there                 bool
	replicas, least, most int32
	// ready are the pods that are.
	ready int32
}

// wanted is what upstream wants at a time, by the server's state.
type wanted struct {
	at time.Time
	n  int32
	scaler
}

// scaling is how the autoscalers of a schedule stand.
type scaling struct {
	schedule schedule.Schedule
	// judged says that the request is the controller's that the server carries out.
	judged bool
	stands map[string]scaler
	looked time.Time
	wants  map[string][]wanted
	looks  map[string]look
	few    map[string]time.Time
	many   map[string]time.Time
}

// Targets are the workloads of autoscalers.
func Targets(s schedule.Schedule) (out []model.Owner) {
	for _, a := range s.Autoscalers {
		out = append(out, model.Owner{Kind: a.Kind, NamespacedName: types.NamespacedName{Namespace: traffic.Namespace, Name: a.Name}})
	}
	return out
}

// byScaler says that the controller of autoscalers sent the request.
func byScaler(r *model.Request) bool { return strings.Contains(r.Agent, arms.AutoscalerClient) }

// standsAt is how an autoscaler stands.
func standsAt(truth model.Truth, a schedule.Autoscaler) (s scaler) {
	switch x := truth.Get(traffic.Kinds[a.Kind], traffic.Namespace, a.Name).(type) {
	case *appsv1.Deployment:
		s.replicas = *x.Spec.Replicas
	case *appsv1.ReplicaSet:
		s.replicas = *x.Spec.Replicas
	}
	if hpa, ok := truth.Get(model.Autoscalers, traffic.Namespace, a.Name).(*autoscalingv2.HorizontalPodAutoscaler); ok {
		s.there, s.least, s.most = true, *hpa.Spec.MinReplicas, hpa.Spec.MaxReplicas
	}
	for _, o := range truth.List(model.Pods) {
		if p, ok := o.(*corev1.Pod); ok && p.Labels["app"] == a.Name && active(p) && ready(p) {
			s.ready++
		}
	}
	return s
}

// want is how many replicas upstream wants of pods and of what is measured. Its tolerance cannot be given to it, so that this is fewer where the load
// is within it.
func (s scaler) want(a schedule.Autoscaler, pods []model.Object, measured figures) int32 {
	n := s.replicas
	if s.replicas >= s.least && s.replicas <= s.most {
		if recommended, err := recommend(pods, a, s.replicas, measured); err == nil {
			n = recommended
		}
	}
	return max(s.least, min(s.most, n))
}

// recommend is what upstream makes of the figures and of pods.
func recommend(of []model.Object, a schedule.Autoscaler, replicas int32, measured figures) (n int32, err error) {
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, o := range of {
		if err := pods.Add(o); err != nil {
			return 0, fmt.Errorf("pods of %s: %w", a.Name, err)
		}
	}
	measured.pods = maps.Clone(measured.pods) // Upstream takes some out of them.
	calculator := podautoscaler.NewReplicaCalculator(measured, corelisters.NewPodLister(pods), arms.CPUInitialization, arms.ReadinessDelay)
	selector, exactly := labels.SelectorFromSet(labels.Set{"app": a.Name}), podautoscaler.Tolerances{}
	switch a.Metric {
	case schedule.ByCPU:
		n, _, _, _, err = calculator.GetResourceReplicas(context.Background(), replicas, 100, corev1.ResourceCPU, exactly, traffic.Namespace, selector, "")
	case schedule.ByValue:
		n, _, _, err = calculator.GetExternalMetricReplicas(replicas, 1000*schedule.TargetLoad, a.Name, exactly, traffic.Namespace, &metav1.LabelSelector{}, selector)
	case schedule.ByAverage:
		n, _, _, err = calculator.GetExternalPerPodMetricReplicas(replicas, 1000*schedule.TargetLoad, a.Name, exactly, traffic.Namespace, &metav1.LabelSelector{})
	}
	if err != nil {
		return 0, fmt.Errorf("replicas of %s: %w", a.Name, err)
	}
	return n, nil
}

// figures are what is measured at one time.
type figures struct {
	metrics.MetricsClient
	pods     metrics.PodMetricsInfo
	external int64
}

// GetResourceMetric implements metrics.MetricsClient.
func (f figures) GetResourceMetric(context.Context, corev1.ResourceName, string, labels.Selector, string) (metrics.PodMetricsInfo, time.Time, error) {
	return f.pods, time.Now(), nil
}

// GetExternalMetric implements metrics.MetricsClient.
func (f figures) GetExternalMetric(string, string, labels.Selector) ([]int64, time.Time, error) {
	return []int64{f.external}, time.Now(), nil
}

// few says that a workload has fewer replicas than its load asks for, by more than what upstream tolerates; many, that it has more.
func (s scaler) few(load int) bool {
	switch {
	case !s.there || s.replicas == 0:
		return false
	case s.replicas < s.least:
		return true
	}
	return s.replicas < s.most && float64(load) > (1+outside)*schedule.TargetLoad*float64(s.replicas) && enough(load) > s.replicas
}

// lacks says that a workload has too few replicas, and no pods besides that carry the load: a deletion of pods that waits, or fails, leaves such.
func (s scaler) lacks(load int) bool {
	pods := s
	pods.replicas = max(s.replicas, s.ready)
	return s.few(load) && pods.few(load)
}

func (s scaler) many(load int) bool {
	switch {
	case !s.there || s.replicas == 0:
		return false
	case s.replicas > s.most:
		return true
	}
	return s.replicas > s.least && float64(load) < (1-outside)*schedule.TargetLoad*float64(s.replicas) && enough(load) < s.replicas
}

// enough is how many replicas a load asks for.
func enough(load int) int32 { return int32(math.Ceil(float64(load) / schedule.TargetLoad)) }

// look is when the controller of autoscalers began to look at one: when it first asked for the scale, however often it asked again.
type look struct {
	at time.Time
	// again says that what it asks for next is not for a new look: the last was refused, or lost.
	again bool
}

// observeScaler notes when the controller of autoscalers begins to look at one.
func (j *Judge) observeScaler(r *model.Request) {
	if r.Subresource != "scale" {
		return
	}
	l := j.scaling.looks[r.Name]
	if !l.again && r.Verb == "get" {
		l.at = r.Sent
	}
	l.again = r.Code != http.StatusOK
	j.scaling.looks[r.Name] = l
}

// Asked is to be told when the load of an autoscaler changes, and when it is asked for: its controller decides by it.
func (j *Judge) Asked(truth model.Truth, a schedule.Autoscaler) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wants(truth, a, time.Now())
}

// wants notes what upstream wants now.
func (j *Judge) wants(truth model.Truth, a schedule.Autoscaler, at time.Time) {
	c := &j.scaling
	w := wanted{at: at, scaler: standsAt(truth, a)}
	var pods []model.Object
	for _, o := range truth.List(model.Pods) {
		if o.GetLabels()["app"] == a.Name {
			pods = append(pods, o)
		}
	}
	var measured figures
	measured.pods, measured.external = traffic.Figures(truth, a, c.schedule.LoadAt(a, at.Sub(j.began)))
	w.n = w.want(a, pods, measured)
	c.wants[a.Name] = append(c.wants[a.Name], w)
}

// judgeScaling notes how the autoscalers stand after a change, and judges one by their controller.
func (j *Judge) judgeScaling(truth model.Truth, r *model.Resource, old, now model.Object, at time.Time) {
	c := &j.scaling
	for i, a := range c.schedule.Autoscalers {
		name := a.Name
		if r == model.Pods && (old == nil || old.GetLabels()["app"] != name) && (now == nil || now.GetLabels()["app"] != name) {
			continue
		}
		was, is := c.stands[name], standsAt(truth, a)
		if c.judged && now != nil && r.Kind == a.Kind && now.GetName() == name && was.replicas != is.replicas {
			j.judgeScale(Targets(c.schedule)[i], a, was, is, at)
		}
		for _, step := range c.schedule.Steps {
			if step.Action == schedule.SetLoad && step.Target == name && j.began.Add(step.At).After(c.looked) && !j.began.Add(step.At).After(at) {
				j.turnScaler(name, was, step.N, j.began.Add(step.At))
			}
		}
		j.turnScaler(name, is, c.schedule.LoadAt(a, at.Sub(j.began)), at)
		c.stands[name] = is
		if r == model.Pods || was != is {
			j.wants(truth, a, at)
		}
	}
	c.looked = at
}

func (j *Judge) turnScaler(name string, s scaler, load int, at time.Time) {
	turn(j.scaling.few, j.record.Few, name, s.lacks(load), at, j.began)
	turn(j.scaling.many, j.record.Many, name, s.many(load), at, j.began)
}

// judgeScale judges a change of replicas by what upstream wanted by the server's state, at any time since the controller looked at the autoscaler.
func (j *Judge) judgeScale(target model.Owner, a schedule.Autoscaler, was, is scaler, at time.Time) {
	c := &j.scaling
	looked := c.looks[a.Name].at
	since := looked.Add(-j.decided - provenBefore)
	lowest, least, most := int32(math.MaxInt32), int32(math.MaxInt32), int32(0)
	series := c.wants[a.Name]
	for i, w := range series {
		if i+1 < len(series) && series[i+1].at.Before(since) {
			continue
		}
		if w.there {
			lowest, least, most = min(lowest, w.n), min(least, w.least), max(most, w.most)
		}
	}
	late := at.Sub(j.began).Round(time.Millisecond)
	switch lowered := is.replicas < was.replicas; {
	case most == 0: // It was made again.
	case is.replicas > most && lowered:
		j.unjustified(Above, "at %s %s from %d to %d of at most %d", late, target, was.replicas, is.replicas, most)
	case is.replicas > most:
		j.unjustified(Raised, "at %s %s from %d to %d of at most %d", late, target, was.replicas, is.replicas, most)
	case is.replicas < least && lowered:
		j.unjustified(Below, "at %s %s from %d to %d of at least %d", late, target, was.replicas, is.replicas, least)
	case lowered && is.replicas < lowest && is.few(c.schedule.LoadAt(a, looked.Sub(j.began))):
		j.unjustified(Lowered, "at %s %s from %d to %d, by the server %d are wanted", late, target, was.replicas, is.replicas, lowest)
	}
}

// digestScalers notes what autoscalers say at the end, and how their workloads are but for how often these were changed.
func (j *Judge) digestScalers(truth model.Truth) {
	j.record.Replicas = map[string]int32{}
	for i, a := range j.scaling.schedule.Autoscalers {
		target := Targets(j.scaling.schedule)[i]
		lines := strings.Split(digest(truth, target), "\n")
		lines[0] = fmt.Sprint(doneIs, stateOf(truth, target).done)
		j.record.Targets[target] = strings.Join(lines, "\n")
		j.record.Replicas[a.Name] = standsAt(truth, a).replicas
		hpa, ok := truth.Get(model.Autoscalers, traffic.Namespace, a.Name).(*autoscalingv2.HorizontalPodAutoscaler)
		if !ok {
			continue
		}
		for _, condition := range hpa.Status.Conditions {
			if condition.Reason == notProvenFresh {
				j.record.Unproven = append(j.record.Unproven, a.Name)
			}
		}
	}
}

// endScaling ends what is open.
func (j *Judge) endScaling(at time.Time) {
	for _, a := range j.scaling.schedule.Autoscalers {
		leave(j.scaling.few, j.record.Few, a.Name, at, j.began)
		leave(j.scaling.many, j.record.Many, a.Name, at, j.began)
	}
}

// scalingExcused says that a wrong action is one that no proof prevents, of which ours does no more than stock: where an event was lost, where
// nothing can be proven for long, and where replicas are raised.
func scalingExcused(s schedule.Schedule, v Violation, stock, ours Record) bool {
	switch v.Rule {
	case Lowered, Below, Above:
		return (s.Has(schedule.LoseEvent) || s.GoesOnUnproven()) && ours.broke(v.Rule) <= stock.broke(v.Rule)
	case Raised:
		return ours.broke(v.Rule) <= stock.broke(v.Rule)
	}
	return false
}

// compareScaling says where ours has a workload have too few replicas, or too many, for longer than stock, or asks more of the server for it.
func compareScaling(s schedule.Schedule, stock, ours Record) (out []Violation) {
	add := func(rule, format string, args ...any) {
		out = append(out, Violation{rule, fmt.Sprintf(format, args...)})
	}
	fault, few := s.TouchedAutoscalers(), time.Duration(0)
	if s.HasFor(schedule.LoseEvent, "horizontalpodautoscalers") && s.Has(schedule.SetMost) {
		few = fault // Stock may have missed a lower maximum that was raised again.
	}
	if s.HasFor(schedule.Hold, "horizontalpodautoscalers") && s.HasFor(schedule.Hold, "pods") {
		few = fault // Replicas that are lowered later may be pods that the cache still has: they keep replicas from being raised, as on stock.
	}
	for i, a := range s.Autoscalers {
		for _, c := range []struct {
			rule        string
			ours, stock []Span
			more        time.Duration
		}{
			{"too few replicas", ours.Few[a.Name], stock.Few[a.Name], few},
			{"too many replicas", ours.Many[a.Name], stock.Many[a.Name], fault},
		} {
			_, _, ourAll, ourOpen := sum(c.ours)
			_, _, all, open := sum(c.stock)
			switch {
			case ourOpen && !open && last(c.ours).For > c.more+raiseMore:
				add("end", "%s: %s not ended for the last %s, stock's is", a.Name, c.rule, last(c.ours).For)
			case !open && ourAll > all+c.more+time.Duration(len(c.ours))*raiseMore:
				add(c.rule, "%s: %s in %d times, stock %s in %d", a.Name, ourAll, len(c.ours), all, len(c.stock))
			}
		}
		owner := Targets(s)[i]
		if was, now := stock.Targets[owner], ours.Targets[owner]; ours.Replicas[a.Name] == stock.Replicas[a.Name] && was != now && !strings.HasPrefix(was, notDone) {
			add("end state", "%s: not as stock leaves it:\n%s\nstock:\n%s", owner, now, was)
		}
	}
	for what, n := range ours.Scaling {
		allowed := stock.Scaling[what]*5/4 + perScaler
		if strings.HasPrefix(what, "get ") {
			allowed += int(fault / time.Second) // An autoscaler that waits for a proof is looked at once a second.
		}
		if n > allowed {
			add("requests", "of the controller of autoscalers: %d times %s, stock %d", n, what, stock.Scaling[what])
		}
	}
	for _, name := range ours.Unproven {
		add("wait", "%s says at the end that its replicas are not lowered", name)
	}
	return out
}
