// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	restclient "k8s.io/client-go/rest"
	"k8s.io/controller-manager/pkg/clientbuilder"
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
	require.Equal(t, 1, watches.End(t.Context(), schema.GroupVersionResource{Version: "v1", Resource: "pods"}, true))
	_, open := <-watch.ResultChan()
	require.False(t, open)
}
