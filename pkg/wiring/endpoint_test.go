// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
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
)

func TestPathsBelowAPrefix(t *testing.T) {
	for name, tc := range map[string]struct{ host, path, want string }{
		"no prefix":                {"https://server", "/api/v1/namespaces/ns/pods/a", "pods"},
		"a slash":                  {"https://server/", "/api/v1/namespaces/ns/pods/a", "pods"},
		"a prefix":                 {"https://server/k8s/clusters/x", "/k8s/clusters/x/apis/apps/v1/namespaces/ns/statefulsets/a/status", "statefulsets"},
		"a prefix and a slash":     {"https://server/k8s/clusters/x/", "/k8s/clusters/x/api/v1/pods", "pods"},
		"a prefix like an API's":   {"https://server/api/v1", "/api/v1/apis/apps/v1/daemonsets", "daemonsets"},
		"without a scheme":         {"server:6443", "/api/v1/pods", "pods"},
		"not below the prefix":     {"https://server/k8s", "/api/v1/pods", ""},
		"a longer name":            {"https://server/k8s", "/k8s-other/api/v1/pods", ""},
		"no resource":              {"https://server/k8s", "/k8s/healthz", ""},
		"a path that is no server": {"https://server", "/k8s/clusters/x/api/v1/pods", ""},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := endpointOf(&restclient.Config{Host: tc.host})
			require.NoError(t, err)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://server"+tc.path, nil)
			require.NoError(t, err)
			info := at.resource(req)
			if tc.want == "" {
				require.Nil(t, info)
			} else {
				require.Equal(t, tc.want, info.Resource)
			}
			require.Equal(t, tc.path, req.URL.Path, "the request is sent as it was")
		})
	}
	_, err := endpointOf(&restclient.Config{Host: "https://server/%zz"})
	require.Error(t, err)
}

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
			set := &appsv1.ReplicaSet{ObjectMeta: ownerMeta(), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: podTemplate()}}
			objects := fake.NewClientset(set)
			handler := &trackerServer{tracker: objects.Tracker()}
			handler.rv.Store(100)
			created := make(chan struct{}, 100)
			server := httptest.NewServer(http.StripPrefix(tc.prefix, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.Method != http.MethodPost || requestedResource(req) != "pods" {
					handler.ServeHTTP(w, req)
					return
				}
				if tc.lose {
					w.WriteHeader(http.StatusInternalServerError)
				} else {
					handler.ServeHTTP(w, req)
				}
				created <- struct{}{}
			})))
			defer server.Close()
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			told := make(chan call, 100)
			store := &telling{told: told}
			consistency.SetProvider(func(string, map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
				return store
			})
			t.Cleanup(func() { consistency.SetProvider(nil) })
			client := Clients(clientbuilder.SimpleControllerClientBuilder{ClientConfig: &restclient.Config{Host: server.URL + tc.prefix}}, nil).ClientOrDie("test")
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
	}
}

func requestedResource(req *http.Request) string {
	if info := endpoint("").resource(req); info != nil {
		return info.Resource
	}
	return ""
}

// telling is a store that tells what the transport records; upstream's own calls of WroteAt are left out.
type telling struct {
	consistency.NoopConsistencyStore
	told chan<- call
}

func (s *telling) Sending(schema.GroupResource) rvtracker.Sent { return rvtracker.Sent{} }

func (s *telling) Wrote(owner types.NamespacedName, uid types.UID, resource schema.GroupResource, answer metav1.ObjectMeta, _ rvtracker.Sent) {
	s.told <- call{owner: owner, ownerUID: uid, resource: resource.String(), rv: answer.ResourceVersion}
}

func (s *telling) Unsettled(owner types.NamespacedName, uid types.UID, resource schema.GroupResource, _ time.Duration) (tracked, again bool) {
	s.told <- call{owner: owner, ownerUID: uid, resource: resource.String(), rv: "unsettled"}
	return true, false
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
	store := NewStore(rvtracker.New(rvtracker.Options{}), "test", map[schema.GroupResource]consistency.LastSyncRVGetter{pods: cache.NewStore(cache.MetaNamespaceKeyFunc)})
	client := Clients(clientbuilder.SimpleControllerClientBuilder{ClientConfig: &restclient.Config{Host: server.URL}}, nil).ClientOrDie("test")
	metrics.Tracker{}.Init("test")
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

// Events go on after the lease, and stalled watches are ended, below a prefix as well.
func TestTransportsBelowAPrefix(t *testing.T) {
	const prefix = "/k8s/clusters/x"
	release := make(chan struct{})
	defer close(release)
	server := httptest.NewServer(http.StripPrefix(prefix, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if req.URL.Query().Has("watch") {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			select {
			case <-release:
			case <-req.Context().Done():
			}
			return
		}
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"a","namespace":"ns"}}`))
	})))
	defer server.Close()
	config := clientbuilder.SimpleControllerClientBuilder{ClientConfig: &restclient.Config{Host: server.URL + prefix}}
	former := Clients(config, &Lease{&heldLease{}, time.Second}).ClientOrDie("test")
	_, err := former.CoreV1().Events("ns").Create(t.Context(), &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}}, metav1.CreateOptions{})
	require.NoError(t, err, "events are exempt")
	_, err = former.CoreV1().Pods("ns").Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{})
	var refused *NotLeaderError
	require.ErrorAs(t, err, &refused)

	watches := NewWatches()
	watches.silent = 0
	watch, err := watches.Clients(config).ClientOrDie("test").CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Equal(t, 1, watches.End(t.Context(), schema.GroupVersionResource{Version: "v1", Resource: "pods"}))
	_, open := <-watch.ResultChan()
	require.False(t, open)
}
