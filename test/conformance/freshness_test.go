// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// unaware makes a client's server one that ignores resourceVersionMatch, as servers before 1.19 do.
type unaware struct {
	next            http.RoundTripper
	informers, ours *atomic.Int64 // requests that had it
}

func (u unaware) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	if !query.Has("resourceVersionMatch") {
		return u.next.RoundTrip(r)
	}
	count := u.informers
	if strings.HasSuffix(r.UserAgent(), " freshness") {
		count = u.ours
	}
	count.Add(1)
	r = r.Clone(r.Context())
	query.Del("resourceVersionMatch")
	r.URL.RawQuery = query.Encode()
	return u.next.RoundTrip(r)
}

// TestMatchIgnored: consistent-resource-version-semantics, "Backward Compatibility", and kubernetes-api-concepts,
// "be prepared to handle the case where the API server is unaware of resourceVersionMatch", for our own client:
// pkg/freshness proves and refuses the same, since it needs no resourceVersionMatch.
//
//conformance:list-semantics Backward Compatibility: a client can live with a server that ignores the match
//conformance:api-concepts Semantics for list: NotOlderThan with limit may be 410, and a client must bear that
func TestMatchIgnored(t *testing.T) {
	t.Parallel()
	for name, small := range map[string]int{"by list": 0, "by watch": -1} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "ignored-"+strings.ReplaceAll(name, " ", "-"))
			var informed, ours atomic.Int64
			ignoring := func(config *rest.Config) *rest.Config {
				config = rest.CopyConfig(config)
				config.Wrap(func(next http.RoundTripper) http.RoundTripper { return unaware{next, &informed, &ours} })
				return config
			}
			informer := inform(t, ignoring(w.servers[lagging].config))
			p, err := freshness.New(freshness.Options{Config: ignoring(w.c.config), SmallCollection: small})
			require.NoError(t, err)
			t.Cleanup(p.Close)
			tracker := rvtracker.New(rvtracker.Options{})
			go tracker.Run(t.Context())
			p.Track(configMaps, informer.GetIndexer(), tracker.Register(configMaps.GroupResource(), informer.GetIndexer()))

			proof, err := p.Prove(t.Context(), configMaps, time.Now())
			require.NoError(t, err)
			require.Equal(t, freshness.Stale, proof.Outcome, proof.String())
			changed := sets.New[string]()
			for _, c := range w.since(w.older) {
				changed.Insert(c.name)
			}
			require.GreaterOrEqual(t, proof.Events, changed.Len())
			require.LessOrEqual(t, proof.Events, len(w.since(w.older)), "a list shows one change for each object")

			w.etcd.Release()
			eventually(t, "the informer to have everything", func() (bool, error) {
				return notAfter(w.newest(), informer.GetIndexer().LastStoreSyncResourceVersion()) == nil, nil
			})
			proof, err = p.Prove(t.Context(), configMaps, time.Now())
			require.NoError(t, err)
			require.Equal(t, freshness.Proven, proof.Outcome, proof.String())
			require.Zero(t, ours.Load(), "our client never asks for it")
			require.Positive(t, informed.Load(), "client-go does, so that something was ignored")
		})
	}
}

// TestExactIsVerified: kubernetes-api-concepts, "Semantics for get and list": a server that does not know resourceVersionMatch
// answers Exact without limit with another version, which the client sees, and Exact with a limit with that version.
//
//conformance:api-concepts Semantics for list: Exact without limit: a client can verify the list's version, and ask with a limit where that is another
func TestExactIsVerified(t *testing.T) {
	h := newHistory(t, shared(t), "exact-verified")
	for _, name := range []string{"a", "b", "c"} {
		h.write(t, name)
	}
	older := h.newest()
	h.write(t, "a")
	var ignored atomic.Int64
	config := rest.CopyConfig(h.c.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return unaware{next, &ignored, &ignored} })
	client := h.client(h.c.at(t, config))
	options := metav1.ListOptions{ResourceVersion: older, ResourceVersionMatch: exactMatch}
	list, err := client.List(t.Context(), options)
	require.NoError(t, err)
	require.NoError(t, before(older, list.GetResourceVersion()), "who does not verify takes this for the state at %s", older)
	options.Limit = 100
	list, err = client.List(t.Context(), options)
	require.NoError(t, err)
	require.Equal(t, older, list.GetResourceVersion())
	require.Equal(t, h.at(t, older), itemsOf(t, list))
	require.EqualValues(t, 2, ignored.Load())
}

// inform runs client-go's informer of configmaps.
func inform(t *testing.T, config *rest.Config) cache.SharedIndexInformer {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().ConfigMaps().Informer()
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(func() {
		close(stop)
		factory.Shutdown()
	})
	eventually(t, "the informer to be in sync", func() (bool, error) { return informer.HasSynced(), nil })
	return informer
}
