// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/scale"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/replication"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
	"k8s.io/utils/clock"
)

// trackerServer serves the objects of a fake clientset over HTTP, so that writes go through a real transport and
// show in the clientset's informers. It applies no patch, and every scale has 9 replicas.
type trackerServer struct {
	tracker clienttesting.ObjectTracker
	rv      atomic.Int64
}

func (s *trackerServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	object, err := s.answer(req)
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	if err != nil {
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":%q}`, err)
		return
	}
	encoder := scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, batchv1.SchemeGroupVersion, autoscalingv2.SchemeGroupVersion, autoscalingv1.SchemeGroupVersion)
	if _, ok := object.(*autoscalingv1.Scale); ok {
		encoder = scheme.Codecs.LegacyCodec(autoscalingv1.SchemeGroupVersion)
	}
	_ = encoder.Encode(object, w)
}

// handling is a server without a connection, for the time of a bubble.
type handling struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (h handling) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	resp := w.Result()
	resp.Request = req
	return resp, nil
}

var requestInfo = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

func (s *trackerServer) answer(req *http.Request) (runtime.Object, error) {
	info, err := requestInfo.NewRequestInfo(req)
	if err != nil {
		return nil, err
	}
	if info.Subresource == "scale" {
		return &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: info.Namespace, Name: info.Name, ResourceVersion: "7"}, Spec: autoscalingv1.ScaleSpec{Replicas: 9}}, nil
	}
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	switch req.Method {
	case http.MethodPost, http.MethodPut:
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), body)
		if err != nil {
			return nil, err
		}
		m, err := meta.Accessor(object)
		if err != nil {
			return nil, err
		}
		rv := strconv.FormatInt(s.rv.Add(1), 10)
		m.SetResourceVersion(rv)
		m.SetNamespace(info.Namespace)
		if req.Method == http.MethodPut {
			return object, s.tracker.Update(gvr, object, info.Namespace)
		}
		m.SetUID(types.UID("uid-" + rv))
		if m.GetName() == "" {
			m.SetName(m.GetGenerateName() + rv)
		}
		return object, s.tracker.Create(gvr, object, info.Namespace)
	case http.MethodDelete:
		object, err := s.tracker.Get(gvr, info.Namespace, info.Name)
		if err != nil {
			return nil, err
		}
		return object, s.tracker.Delete(gvr, info.Namespace, info.Name)
	}
	return s.tracker.Get(gvr, info.Namespace, info.Name)
}

// write is a request that changes something, and for whom it was made.
type write struct {
	what  string // such as "PUT statefulsets.apps/status"
	owner string // empty: nobody
}

// writes tells of the writes that reach the wire; events are left out.
type writes struct {
	next http.RoundTripper
	made chan<- write
}

func (o writes) RoundTrip(req *http.Request) (*http.Response, error) {
	if info, err := requestInfo.NewRequestInfo(req); err == nil && req.Method != http.MethodGet && info.Resource != "events" {
		w := write{what: req.Method + " " + schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}.String()}
		if info.Subresource != "" {
			w.what += "/" + info.Subresource
		}
		if owner, ok := consistency.OwnerFrom(req.Context()); ok {
			w.owner = string(owner.UID)
		}
		o.made <- w
	}
	return o.next.RoundTrip(req)
}

// runner is a controller that was built.
type runner func(ctx context.Context, workers int)

const ownerUID = "owner-uid"

func ownerMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: ownerUID, ResourceVersion: "1"}
}

func podTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

func statefulSet(replicas int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: ownerMeta(), Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: podTemplate(),
		RevisionHistoryLimit: new(int32(9)), PodManagementPolicy: appsv1.ParallelPodManagement,
		UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType},
		PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
	}}
}

// podOf is a pod that the StatefulSet has made and that lost the label which names it, if it is to.
func podOf(set *appsv1.StatefulSet, name string, named bool) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1", Labels: map[string]string{"app": "web"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}},
		Spec:   corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-" + name}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	if named {
		pod.Labels[appsv1.StatefulSetPodNameLabel] = name
	}
	return pod
}

// Every write that a controller with a store makes for an object says so: whoever makes it without the reconcile's
// context makes a write that is not recorded, and whose lost answer nobody learns of.
func TestEveryWriteHasAnOwner(t *testing.T) {
	runStatefulSet := func(ctx context.Context, _ *testing.T, f informers.SharedInformerFactory, c kubernetes.Interface, _ *restclient.Config) runner {
		return statefulset.NewStatefulSetController(ctx, f.Core().V1().Pods(), f.Apps().V1().StatefulSets(), f.Core().V1().PersistentVolumeClaims(), f.Apps().V1().ControllerRevisions(), c).Run
	}
	labels := map[string]string{"app": "web"}
	tests := map[string]struct {
		objects []runtime.Object
		build   func(ctx context.Context, t *testing.T, f informers.SharedInformerFactory, c kubernetes.Interface, config *restclient.Config) runner
		want    []string
	}{
		"daemonset": {
			objects: []runtime.Object{
				&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node", ResourceVersion: "1"}},
				&appsv1.DaemonSet{ObjectMeta: ownerMeta(), Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate(), RevisionHistoryLimit: new(int32(9)),
					UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}}},
			},
			build: func(ctx context.Context, t *testing.T, f informers.SharedInformerFactory, c kubernetes.Interface, _ *restclient.Config) runner {
				dsc, err := daemon.NewDaemonSetsController(ctx, f.Apps().V1().DaemonSets(), f.Apps().V1().ControllerRevisions(), f.Core().V1().Pods(), f.Core().V1().Nodes(), c,
					flowcontrol.NewFakeBackOff(time.Second, time.Minute, clock.RealClock{}))
				require.NoError(t, err)
				return dsc.Run
			},
			want: []string{"POST controllerrevisions.apps", "POST pods", "PUT daemonsets.apps/status"},
		},
		"replicaset": {
			objects: []runtime.Object{&appsv1.ReplicaSet{ObjectMeta: ownerMeta(), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate()}}},
			build: func(ctx context.Context, _ *testing.T, f informers.SharedInformerFactory, c kubernetes.Interface, _ *restclient.Config) runner {
				return replicaset.NewReplicaSetController(ctx, f.Apps().V1().ReplicaSets(), f.Core().V1().Pods(), c, 10).Run
			},
			want: []string{"POST pods", "PUT replicasets.apps/status"},
		},
		"replicationcontroller": {
			objects: []runtime.Object{&corev1.ReplicationController{ObjectMeta: ownerMeta(), Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(1)), Selector: labels, Template: new(podTemplate())}}},
			build: func(ctx context.Context, _ *testing.T, f informers.SharedInformerFactory, c kubernetes.Interface, _ *restclient.Config) runner {
				return replication.NewReplicationManager(ctx, f.Core().V1().Pods(), f.Core().V1().ReplicationControllers(), c, 10).Run
			},
			want: []string{"POST pods", "PUT replicationcontrollers/status"},
		},
		"job": {
			objects: []runtime.Object{&batchv1.Job{ObjectMeta: ownerMeta(), Spec: batchv1.JobSpec{Parallelism: new(int32(1)), Completions: new(int32(1)), BackoffLimit: new(int32(1)), CompletionMode: new(batchv1.NonIndexedCompletion),
				Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate()}}},
			build: func(ctx context.Context, t *testing.T, f informers.SharedInformerFactory, c kubernetes.Interface, _ *restclient.Config) runner {
				jm, err := job.NewController(ctx, c, f.Core().V1().Pods(), f.Batch().V1().Jobs(), nil, nil)
				require.NoError(t, err)
				return jm.Run
			},
			want: []string{"POST pods", "PUT jobs.batch/status"},
		},
		"statefulset adopts": {
			objects: []runtime.Object{statefulSet(1), &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "orphan", UID: "orphan", ResourceVersion: "1", Labels: labels}, Revision: 1}},
			build:   runStatefulSet,
			want:    []string{"PATCH controllerrevisions.apps"},
		},
		"statefulset creates": {
			objects: []runtime.Object{statefulSet(1)},
			build:   runStatefulSet,
			want:    []string{"POST controllerrevisions.apps", "POST persistentvolumeclaims", "POST pods", "PUT persistentvolumeclaims", "PUT statefulsets.apps/status"},
		},
		"statefulset updates": {
			objects: []runtime.Object{statefulSet(1), podOf(statefulSet(1), "web-0", false)},
			build:   runStatefulSet,
			want:    []string{"PUT pods"},
		},
		"statefulset deletes": {
			objects: []runtime.Object{statefulSet(0), podOf(statefulSet(0), "web-0", true)},
			build:   runStatefulSet,
			want:    []string{"DELETE pods"},
		},
		"horizontalpodautoscaler": {
			objects: []runtime.Object{&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: ownerMeta(), Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: new(int32(1)), MaxReplicas: 3,
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}}}},
			build: func(ctx context.Context, _ *testing.T, f informers.SharedInformerFactory, c kubernetes.Interface, config *restclient.Config) runner {
				mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{appsv1.SchemeGroupVersion})
				mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
				scales := scale.New(c.Discovery().RESTClient(), mapper, dynamic.LegacyAPIPathResolverFunc, scaleKind{})
				return podautoscaler.NewHorizontalController(ctx, c.CoreV1(), scales, c.AutoscalingV2(), mapper, nil, f.Autoscaling().V2().HorizontalPodAutoscalers(), f.Core().V1().Pods(),
					time.Second, time.Minute, 0.1, time.Minute, time.Minute).Run
			},
			want: []string{"PUT deployments.apps/scale", "PUT horizontalpodautoscalers.autoscaling/status"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				consistency.SetProvider(func(string, map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
					return consistency.NewNoopConsistencyStore()
				})
				t.Cleanup(func() { consistency.SetProvider(nil) })
				objects := fake.NewClientset(tc.objects...)
				handler := &trackerServer{tracker: objects.Tracker()}
				handler.rv.Store(100)
				made := make(chan write, 100)
				config := &restclient.Config{Host: "http://server", Transport: handling{handler}, ContentConfig: restclient.ContentConfig{ContentType: runtime.ContentTypeJSON}}
				config.Wrap(func(next http.RoundTripper) http.RoundTripper { return writes{next, made} })
				builder := clientbuilder.SimpleControllerClientBuilder{ClientConfig: config}
				ctx, cancel := context.WithTimeout(t.Context(), waitTime)
				defer cancel()
				factory := informers.NewSharedInformerFactory(objects, 0)
				run := tc.build(ctx, t, factory, builder.ClientOrDie("test"), builder.ConfigOrDie("test"))
				factory.Start(ctx.Done())
				synctest.Wait() // The fake clientset keeps nothing for a watch that is yet to be opened.
				done := make(chan struct{})
				go func() {
					defer close(done)
					run(ctx, 1)
				}()
				missing := map[string]bool{}
				for _, what := range tc.want {
					missing[what] = true
				}
				for len(missing) > 0 {
					select {
					case w := <-made:
						require.Equal(t, ownerUID, w.owner, "%s is made for nobody", w.what)
						delete(missing, w.what)
					case <-ctx.Done():
						require.Empty(t, missing, "these were to be made")
					}
				}
				cancel()
				<-done
				factory.Shutdown()
			})
		})
	}
}

// scaleKind has every scale in autoscaling/v1.
type scaleKind struct{}

func (scaleKind) ScaleForResource(schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return autoscalingv1.SchemeGroupVersion.WithKind("Scale"), nil
}
