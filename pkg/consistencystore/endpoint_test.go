// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// The real controller, behind a proxy that serves the apiserver below a path.
func TestProtectionBehindAPathPrefix(t *testing.T) {
	const prefix = "/k8s/clusters/x"
	metrics.Register()
	for name, tc := range map[string]struct {
		lose   bool // the answer to the first creation
		prefix string
	}{
		"recorded":          {prefix: prefix},
		"answer lost":       {prefix: prefix, lose: true},
		"no prefix":         {},
		"no prefix, a loss": {lose: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := &appsv1.ReplicaSet{ObjectMeta: ownerMeta(), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: podTemplate()}}
				objects := fake.NewClientset(set)
				handler := &trackerServer{tracker: objects.Tracker()}
				handler.rv.Store(100)
				created := make(chan struct{}, 100)
				server := handling{http.StripPrefix(tc.prefix, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if req.Method != http.MethodPost || path.Base(req.URL.Path) != "pods" {
						handler.ServeHTTP(w, req)
						return
					}
					if tc.lose {
						w.WriteHeader(http.StatusInternalServerError)
					} else {
						handler.ServeHTTP(w, req)
					}
					created <- struct{}{}
				}))}
				ctx, cancel := context.WithTimeout(t.Context(), waitTime)
				defer cancel()
				told := make(chan call, 100)
				store := &telling{told: told}
				consistency.SetProvider(func(string, map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
					return store
				})
				t.Cleanup(func() { consistency.SetProvider(nil) })
				client := transport.Clients(clientbuilder.SimpleControllerClientBuilder{ClientConfig: &restclient.Config{Host: "http://server" + tc.prefix, Transport: server}}, nil).ClientOrDie("test")
				factory := informers.NewSharedInformerFactory(objects, 0)
				rsc := replicaset.NewReplicaSetController(ctx, factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client, 10)
				factory.Start(ctx.Done())
				done := make(chan struct{})
				go func() {
					defer close(done)
					rsc.Run(ctx, 1)
				}()
				<-created
				want := "101"
				if tc.lose {
					want = "unsettled"
				}
				for {
					select {
					case c := <-told:
						if c.resource != "pods" {
							continue
						}
						require.Equal(t, types.UID(ownerUID), c.ownerUID)
						require.Equal(t, want, c.rv)
					case <-ctx.Done():
						t.Fatal("nothing was recorded")
					}
					break
				}
				cancel()
				<-done
				factory.Shutdown()
			})
		})
	}
}

// telling is a store that tells what the transport records; upstream's own calls of WroteAt are left out.
type telling struct {
	deafStore
	told chan<- call
}

func (s *telling) Sending(schema.GroupResource) rvtracker.Sent { return rvtracker.Sent{} }

func (s *telling) Wrote(owner types.NamespacedName, uid types.UID, resource schema.GroupResource, answer metav1.ObjectMeta, _ rvtracker.Sent) {
	s.told <- call{owner: owner, ownerUID: uid, resource: resource.String(), rv: answer.ResourceVersion}
}

func (s *telling) Unsettled(owner types.NamespacedName, uid types.UID, resource schema.GroupResource, _ time.Duration) (again transport.PutOff, tracked bool) {
	s.told <- call{owner: owner, ownerUID: uid, resource: resource.String(), rv: "unsettled"}
	return transport.PutOff{}, true
}

// What cannot be read is said, and upstream's expectations stand.
func TestWritesToAPathThatIsNotKnown(t *testing.T) {
	metrics.Register()
	var count int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		count++
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","resourceVersion":"5"}}`))
	}))
	defer server.Close()
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	store := newStore(rvtracker.New(rvtracker.Options{}), "test", map[schema.GroupResource]consistency.LastSyncRVGetter{pods: cache.NewStore(cache.MetaNamespaceKeyFunc)})
	client := transport.Clients(clientbuilder.SimpleControllerClientBuilder{ClientConfig: &restclient.Config{Host: server.URL}}, nil).ClientOrDie("test")
	metrics.Tracker{}.Init("test", seriesValues)
	before := unrecorded(t, metrics.PathUnreadable)
	err := client.CoreV1().RESTClient().Post().AbsPath("/elsewhere/pods").Body(&corev1.Pod{}).Do(consistency.WithOwner(t.Context(), store, owner, "uid")).Error()
	require.NoError(t, err)
	require.Equal(t, 1, count)
	require.False(t, store.SeenOwnWrites(owner))
	require.InDelta(t, before+1, unrecorded(t, metrics.PathUnreadable), 0)
	_, err = client.CoreV1().RESTClient().Get().AbsPath("/elsewhere/pods").Do(consistency.WithOwner(t.Context(), store, types.NamespacedName{Name: "reader"}, "uid")).Raw()
	require.NoError(t, err)
	require.True(t, store.SeenOwnWrites(types.NamespacedName{Name: "reader"}), "a read is none")
}

func unrecorded(t *testing.T, cause string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != "stale_controller_unrecorded_writes_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == cause {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatal("there is no such series")
	return 0
}
