// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are what it is about.

package composition

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/faults"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// What Services have is as it should be as soon as the cache shows what the controller has written. On stock it is tried again after a
// backoff of up to 1000 s, or, after 15 tries, not at all.
func TestEndpointsThatAreNotSeen(t *testing.T) {
	for held, lacked := range map[*model.Resource][]string{model.Slices: {"slices", "mirrored slices"}, model.Endpoints: {"Endpoints"}} {
		stock, ours := afterHold(t, arms.Stock, held), afterHold(t, arms.Ours, held)
		t.Logf("%s behind, after all is seen: stock %v, ours %v", held.GroupVersionResource.Resource, stock, ours)
		for _, what := range lacked {
			require.Greater(t, stock[what], 2*time.Second, what)
		}
		for what, by := range ours {
			require.Less(t, by, time.Second, what)
		}
	}
}

// afterHold has pods, and Endpoints that somebody makes, come while watches of a resource are held. It returns for how long what Services have
// is behind after that.
func afterHold(t *testing.T, arm arms.Arm, held *model.Resource) map[string]time.Duration {
	t.Helper()
	const pods = 5
	behind := map[string]time.Duration{}
	synctest.Test(t, func(t *testing.T) {
		server := model.New()
		tr := traffic.Start(server, schedule.Schedule{Nodes: 1})
		manager, err := arms.Start(context.Background(), arm, server, arms.Flags{Slices: true, Endpoints: true})
		require.NoError(t, err)
		defer func() {
			tr.End()
			manager.End()
		}()
		server.Create(model.Services, webService())
		server.Create(model.Services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: traffic.Namespace, Name: "manual"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}}})
		server.Create(model.Endpoints, &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: traffic.Namespace, Name: "manual"}, Subsets: subsets(1)})
		time.Sleep(20 * time.Second)
		server.Hold(held, true)
		for n := range pods {
			time.Sleep(time.Second)
			server.Create(model.Pods, webPod(n))
			model.Change(server, model.Endpoints, traffic.Namespace, "manual", func(e *corev1.Endpoints) { e.Subsets = subsets(n + 2) })
		}
		time.Sleep(35 * time.Second)
		server.Hold(held, false)
		released := time.Now()
		for time.Since(released) < 2*time.Minute {
			time.Sleep(100 * time.Millisecond)
			server.Look(func(truth model.Truth) {
				for what, has := range addressesOf(truth) {
					if want := map[string]int{"Endpoints": pods, "slices": pods, "mirrored slices": pods + 1}[what]; has != want {
						behind[what] = time.Since(released)
					}
				}
			})
		}
	})
	return behind
}

// A Service has many slices, which the cache shows one after the other, and late, as they were written. What the last try writes then fails for a while. Where each
// slice that is seen had the Service tried, and fail, the queue would drop it, or try it again after a backoff of minutes.
func TestServiceWhoseSlicesAreSeenOneByOne(t *testing.T) {
	for _, fails := range []time.Duration{6 * time.Second, 20 * time.Second, time.Minute, 4 * time.Minute} {
		stock, ours := afterSlices(t, arms.Stock, fails), afterSlices(t, arms.Ours, fails)
		t.Logf("writes fail for %v, the port is in all slices after: stock %v, ours %v", fails, stock, ours)
		assert.Less(t, ours, stock+lateSlices)
	}
}

// lateSlices is how late.
const lateSlices = 5 * time.Second

// afterSlices changes the port of a Service twice while watches of its slices are late, and has writes fail when the first is seen. It returns how long it takes
// until all have the second port.
func afterSlices(t *testing.T, arm arms.Arm, fails time.Duration) (took time.Duration) {
	t.Helper()
	const pods, perSlice, limit = 40, 2, time.Hour
	synctest.Test(t, func(t *testing.T) {
		server := model.New()
		f := faults.New(server)
		server.Fate = f.Fate
		tr := traffic.Start(server, schedule.Schedule{Nodes: 1})
		manager, err := arms.Start(context.Background(), arm, server, arms.Flags{Slices: true, PerSlice: perSlice, QPS: 10})
		require.NoError(t, err)
		defer func() {
			tr.End()
			manager.End()
		}()
		for n := range pods {
			server.Create(model.Pods, webPod(n))
		}
		server.Create(model.Services, webService())
		time.Sleep(time.Minute)
		port := func(number int32) (slices int) {
			server.Look(func(truth model.Truth) {
				for _, o := range truth.List(model.Slices) {
					if *o.(*discoveryv1.EndpointSlice).Ports[0].Port == number {
						slices++
					}
				}
			})
			return slices
		}
		edit := func(number int32) {
			model.Change(server, model.Services, traffic.Namespace, "web", func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(number) })
		}
		require.Equal(t, pods/perSlice, port(80))
		f.Do(schedule.Step{Action: schedule.Late, Target: "endpointslices", Delay: lateSlices, For: limit}, tr.After)
		edit(81)
		time.Sleep(lateSlices - time.Second)
		edit(82)
		time.Sleep(time.Second)
		began := time.Now()
		f.Do(schedule.Step{Action: schedule.FailWrites, Target: "endpointslices", For: fails}, tr.After)
		for port(82) < pods/perSlice && took < limit {
			time.Sleep(100 * time.Millisecond)
			took = time.Since(began)
		}
	})
	return took
}

// A Service of which one slice is refused for long, while others are written, and seen late, is tried no more often than on stock, and made no later once it is
// not refused any more.
func TestServiceOfWhichASliceIsRefused(t *testing.T) {
	for _, fails := range []time.Duration{30 * time.Second, 5 * time.Minute, 30 * time.Minute} {
		stock, stockTook := refusedSlice(t, arms.Stock, fails)
		ours, took := refusedSlice(t, arms.Ours, fails)
		t.Logf("refused for %v: stock %d times, made after %v; ours %d times, after %v", fails, stock, stockTook, ours, took)
		assert.LessOrEqual(t, ours, stock*5/4+2)
		assert.LessOrEqual(t, took, stockTook+time.Second)
	}
}

// refusedSlice has a Service become one of both families while new slices are refused, and one of its pods turn unready each minute. It returns how many slices
// were refused, and how long it took until there was one after that.
func refusedSlice(t *testing.T, arm arms.Arm, fails time.Duration) (refused int, took time.Duration) {
	t.Helper()
	const late, every = 10 * time.Second, time.Minute
	synctest.Test(t, func(t *testing.T) {
		server := model.New()
		f := faults.New(server)
		var refuses bool
		server.Fate = func(r *model.Request) model.Fate {
			fate := f.Fate(r)
			if refuses && r.Resource == model.Slices && r.Verb == "create" {
				refused++
				fate.Refusal = model.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "endpointslices are forbidden: exceeded quota", 0)
			}
			return fate
		}
		tr := traffic.Start(server, schedule.Schedule{Nodes: 1})
		manager, err := arms.Start(context.Background(), arm, server, arms.Flags{Slices: true})
		require.NoError(t, err)
		defer func() {
			tr.End()
			manager.End()
		}()
		for n := range 3 {
			pod := webPod(n)
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: fmt.Sprintf("fd00::%d", n+1)})
			server.Create(model.Pods, pod)
		}
		server.Create(model.Services, webService())
		time.Sleep(20 * time.Second)
		f.Do(schedule.Step{Action: schedule.Late, Target: "endpointslices", Delay: late, For: 2 * time.Hour}, tr.After)
		refuses = true
		model.Change(server, model.Services, traffic.Namespace, "web", func(s *corev1.Service) {
			s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPv6Protocol)
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, "fd00::100")
		})
		began := time.Now()
		ready := func(status corev1.ConditionStatus) {
			model.Change(server, model.Pods, traffic.Namespace, "web-0", func(p *corev1.Pod) { p.Status.Conditions[0].Status = status })
		}
		made := func() (made bool) {
			server.Look(func(truth model.Truth) { made = len(truth.List(model.Slices)) == 2 })
			return made
		}
		for time.Since(began) < fails+time.Hour && !made() {
			refuses = time.Since(began) < fails
			switch time.Since(began) % every {
			case 30 * time.Second:
				ready(corev1.ConditionFalse)
			case 50 * time.Second:
				ready(corev1.ConditionTrue)
			}
			time.Sleep(100 * time.Millisecond)
		}
		took = time.Since(began) - fails
	})
	return refused, took
}

func webService() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: traffic.Namespace, Name: "web"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80), Protocol: corev1.ProtocolTCP}}}}
}

// webPod is the nth of the Service.
func webPod(n int) *corev1.Pod {
	ip := fmt.Sprintf("10.1.0.%d", n+1)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: traffic.Namespace, Name: fmt.Sprint("web-", n), Labels: map[string]string{"app": "web"}},
		Spec:   corev1.PodSpec{NodeName: "node-0"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
}

// subsets has so many addresses.
func subsets(n int) []corev1.EndpointSubset {
	s := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Port: 80, Protocol: corev1.ProtocolTCP}}}
	for i := range n {
		s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: fmt.Sprintf("10.2.0.%d", i+1)})
	}
	return []corev1.EndpointSubset{s}
}

// addressesOf are how many addresses the Services have.
func addressesOf(truth model.Truth) map[string]int {
	n := map[string]int{"Endpoints": 0, "slices": 0, "mirrored slices": 0}
	for _, o := range truth.List(model.Endpoints) {
		if o.GetName() == "web" {
			for _, s := range o.(*corev1.Endpoints).Subsets {
				n["Endpoints"] += len(s.Addresses)
			}
		}
	}
	for _, o := range truth.List(model.Slices) {
		what := map[string]string{"web": "slices", "manual": "mirrored slices"}[o.GetLabels()[discoveryv1.LabelServiceName]]
		n[what] += len(o.(*discoveryv1.EndpointSlice).Endpoints)
	}
	return n
}
