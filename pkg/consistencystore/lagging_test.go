// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

// handled is an informer whose events the test makes.
type handled struct {
	cache.SharedInformer
	handler cache.ResourceEventHandler
}

func (h *handled) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	h.handler = handler
	return nil, nil
}

// backQueue notes the keys that come back, and how often those have failed that it has been told to add with backoff.
type backQueue struct {
	workqueue.TypedRateLimitingInterface[string]
	back     []string
	failures map[string]int
}

func (q *backQueue) Add(key string)             { q.back = append(q.back, key) }
func (q *backQueue) Forget(key string)          { delete(q.failures, key) }
func (q *backQueue) NumRequeues(key string) int { return q.failures[key] }

// A key that was put off comes back once, when the cache shows what it lacked, by whatever event.
func TestKeysThatLagComeBackOnce(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	yes, no := func() bool { return true }, func() bool { return false }
	for name, event := range map[string]func(cache.ResourceEventHandler){
		"added":   func(h cache.ResourceEventHandler) { h.OnAdd(service, false) },
		"changed": func(h cache.ResourceEventHandler) { h.OnUpdate(service, service) },
		"deleted": func(h cache.ResourceEventHandler) { h.OnDelete(service) },
		"deletion was missed": func(h cache.ResourceEventHandler) {
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/a", Obj: service})
		},
	} {
		t.Run(name, func(t *testing.T) {
			queue, informer := &backQueue{}, &handled{}
			keyOf := func(obj any) string { return obj.(metav1.Object).GetNamespace() + "/" + obj.(metav1.Object).GetName() }
			l := consistency.NewLagging(passStore(t.Context(), nil, nil), informer, keyOf, queue)

			event(informer.handler)
			require.Empty(t, queue.back, "it was not put off")
			behind := true
			require.True(t, consistency.Lags(l, "ns/a", true, func() bool { return behind }))
			require.True(t, consistency.Lags(l, "ns/b", true, yes))
			behind = false
			event(informer.handler)
			event(informer.handler)
			require.Equal(t, []string{"ns/a"}, queue.back)

			require.True(t, consistency.Lags(l, "ns/a", true, no), "the cache has caught up before it was noted")
			require.Equal(t, []string{"ns/a", "ns/a"}, queue.back)

			behind = true
			require.True(t, consistency.Lags(l, "ns/a", true, func() bool { return behind }))
			require.False(t, consistency.Lags(l, "ns/a", false, yes))
			behind = false
			event(informer.handler)
			require.Len(t, queue.back, 2, "it was reconciled meanwhile")
		})
	}
}

// A key that lags for several objects comes back when the last of them is seen. Whatever comes before would have it tried, and fail, once more: after 15
// tries the queue drops it.
func TestAKeyThatLagsForSeveralComesBackForTheLast(t *testing.T) {
	const slices = 30
	missing := slices
	queue, informer := &backQueue{}, &handled{}
	l := consistency.NewLagging(passStore(t.Context(), nil, nil), informer, func(any) string { return "ns/a" }, queue)
	require.True(t, consistency.Lags(l, "ns/a", true, func() bool { return missing > 0 }))
	for missing > 0 {
		require.Empty(t, queue.back)
		missing--
		informer.handler.OnAdd(&corev1.Service{}, false)
	}
	require.Len(t, queue.back, 1)
	informer.handler.OnAdd(&corev1.Service{}, false)
	require.Len(t, queue.back, 1)
}

// What fails for a key only because it lags does not count once it does not. A key for which anything else has failed is left to its queue: it is not tried
// once more, and its failures count.
func TestAKeyThatHasFailedIsLeftToItsQueue(t *testing.T) {
	for _, before := range []int{0, 3} {
		behind := true
		queue, informer := &backQueue{failures: map[string]int{"ns/a": before}}, &handled{}
		l := consistency.NewLagging(passStore(t.Context(), nil, nil), informer, func(any) string { return "ns/a" }, queue)
		for range 4 {
			require.True(t, consistency.Lags(l, "ns/a", true, func() bool { return behind }))
			queue.failures["ns/a"]++
		}
		behind = false
		informer.handler.OnAdd(&corev1.Service{}, false)
		if before == 0 {
			require.Equal(t, []string{"ns/a"}, queue.back)
			require.Zero(t, queue.NumRequeues("ns/a"))
		} else {
			require.Empty(t, queue.back)
			require.Equal(t, before+4, queue.NumRequeues("ns/a"))
		}
	}
}

// Without proofs a controller puts nothing back, as upstream's.
func TestNothingLagsWithoutProofs(t *testing.T) {
	s := passStore(t.Context(), nil, nil)
	s.prover = nil
	for _, store := range []consistency.ConsistencyStore{s, consistency.NewNoopConsistencyStore()} {
		l := consistency.NewLagging(store, &handled{}, nil, nil)
		require.Nil(t, l)
		require.True(t, consistency.Lags(l, "ns/a", true, nil))
		require.False(t, consistency.Lags(l, "ns/a", false, nil))
	}
}
