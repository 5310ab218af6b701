// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	scalefake "k8s.io/client-go/scale/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	podautoscalermetrics "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// oneLoad is an external metric.
type oneLoad struct {
	podautoscalermetrics.MetricsClient
	load int64
}

func (l oneLoad) GetExternalMetric(string, string, labels.Selector) ([]int64, time.Time, error) {
	return []int64{l.load * 1000}, time.Now(), nil
}

func (l oneLoad) GetObjectMetric(string, string, *autoscalingv2.CrossVersionObjectReference, labels.Selector) (int64, time.Time, error) {
	return l.load * 1000, time.Now(), nil
}

// external and object are metrics of a load, by what all or each are to have of it.
func external(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "load"}, Target: target}}
}

func object(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "load"}, Target: target}}
}

var (
	byValue = autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: resource.NewQuantity(100, resource.DecimalSI)}
	byEach  = autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: resource.NewQuantity(100, resource.DecimalSI)}
)

// autoscalerTest is about ten replicas, two of which are ready by the cache. Each is there for a load of 100.
type autoscalerTest struct {
	pods, autoscalers freshness.Proof
	stock             bool
	load              int64
	most              int32                      // 0: 20
	metrics           []autoscalingv2.MetricSpec // nil: external, by value

	// want is how many replicas there are soon, and wantLater after so long.
	want, wantLater int32
	later           time.Duration
	waits           bool // the condition says so
}

// Stock counts the pods of its cache, and scales a workload down that is under load.
func TestReplicasAreLoweredByProvenPods(t *testing.T) {
	for name, test := range map[string]autoscalerTest{
		"stock, under load":                {stock: true, load: 150, want: 3},
		"fresh":                            {pods: fresh, autoscalers: fresh, load: 150, want: 3},
		"pods stale":                       {pods: stale, autoscalers: fresh, load: 150, want: 10, waits: true, later: rvtracker.OwnerLimits.Stale + time.Minute, wantLater: 3},
		"autoscaler stale":                 {pods: fresh, autoscalers: stale, load: 150, want: 10, waits: true},
		"nothing can be proven":            {pods: down, autoscalers: down, load: 150, want: 10, waits: true, later: rvtracker.OwnerLimits.Unknown + 30*time.Second, wantLater: 3},
		"raised, pods stale":               {pods: stale, autoscalers: stale, load: 600, want: 12},
		"more than most, pods stale":       {pods: stale, autoscalers: fresh, load: 600, most: 8, want: 8},
		"more than most, autoscaler stale": {pods: fresh, autoscalers: stale, load: 600, most: 8, want: 10, waits: true},
		"of an object, pods stale":         {pods: stale, autoscalers: fresh, load: 150, want: 10, waits: true, metrics: []autoscalingv2.MetricSpec{object(byValue)}},
		"for each, pods stale":             {pods: stale, autoscalers: fresh, load: 150, want: 2, metrics: []autoscalingv2.MetricSpec{external(byEach)}},
		"for each, autoscaler stale":       {pods: fresh, autoscalers: stale, load: 150, want: 10, waits: true, metrics: []autoscalingv2.MetricSpec{external(byEach)}},
		"of an object, for each":           {pods: stale, autoscalers: fresh, load: 150, want: 2, metrics: []autoscalingv2.MetricSpec{object(byEach)}},
		"one for each, one not":            {pods: stale, autoscalers: fresh, load: 150, want: 10, waits: true, metrics: []autoscalingv2.MetricSpec{external(byEach), external(byValue)}},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test.run) })
	}
}

func (c autoscalerTest) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	consistency.SetProvider(func(controller string, caches map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
		require.Equal(t, "horizontalpodautoscaler", controller)
		if c.stock {
			return consistency.NewNoopConsistencyStore()
		}
		s := passStore(ctx, nil, caches)
		s.name, s.prover = controller, &answers{Prover: &proofTimes{store: s, proofs: map[schema.GroupResource]freshness.Proof{
			pods: c.pods, autoscalingv2.Resource("horizontalpodautoscalers"): c.autoscalers}}}
		return s
	})
	most := c.most
	if most == 0 {
		most = 20
	}
	metrics := c.metrics
	if metrics == nil {
		metrics = []autoscalingv2.MetricSpec{external(byValue)}
	}
	objects := []runtime.Object{&autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "a"}, MinReplicas: new(int32(1)), MaxReplicas: most,
			Metrics: metrics,
		},
	}}
	for i := range 10 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(rune('a' + i)), Labels: map[string]string{"app": "a"}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		if i < 2 {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		objects = append(objects, pod)
	}
	client := fake.NewClientset(objects...)
	var replicas atomic.Int32
	replicas.Store(10)
	scales := &scalefake.FakeScaleClient{}
	scale := func() *autoscalingv1.Scale {
		n := replicas.Load()
		return &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Spec: autoscalingv1.ScaleSpec{Replicas: n}, Status: autoscalingv1.ScaleStatus{Replicas: n, Selector: "app=a"}}
	}
	scales.AddReactor("get", "replicasets", func(k8stesting.Action) (bool, runtime.Object, error) { return true, scale(), nil })
	scales.AddReactor("update", "replicasets", func(action k8stesting.Action) (bool, runtime.Object, error) {
		replicas.Store(action.(k8stesting.UpdateAction).GetObject().(*autoscalingv1.Scale).Spec.Replicas)
		return true, scale(), nil
	})
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "apps", Version: "v1"}})
	mapper.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, meta.RESTScopeNamespace)
	factory := informers.NewSharedInformerFactory(client, 0)
	controller := podautoscaler.NewHorizontalController(ctx, client.CoreV1(), scales, client.AutoscalingV2(), mapper, oneLoad{load: c.load},
		factory.Autoscaling().V2().HorizontalPodAutoscalers(), factory.Core().V1().Pods(), 15*time.Second, 0, 0.1, 0, 0)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	runUntilCleanup(t, cancel, factory, func() { controller.Run(ctx, 1) })
	time.Sleep(40 * time.Second)
	synctest.Wait()
	require.Equal(t, c.want, replicas.Load())
	hpa, err := client.AutoscalingV2().HorizontalPodAutoscalers("ns").Get(ctx, "a", metav1.GetOptions{})
	require.NoError(t, err)
	waits := false
	for _, condition := range hpa.Status.Conditions {
		waits = waits || condition.Type == autoscalingv2.ScalingLimited && condition.Reason == "CacheNotProvenFresh"
	}
	require.Equal(t, c.waits, waits, hpa.Status.Conditions)
	written := func() (n int) {
		for _, action := range client.Actions() {
			if action.Matches("update", "horizontalpodautoscalers/status") {
				n++
			}
		}
		return n
	}
	before := written()
	time.Sleep(15 * time.Second)
	require.LessOrEqual(t, written(), before+1, "what waits is not written each time")
	if c.later > 0 {
		time.Sleep(c.later)
		synctest.Wait()
		require.Equal(t, c.wantLater, replicas.Load(), "no longer than a value may be held back")
	}
}
