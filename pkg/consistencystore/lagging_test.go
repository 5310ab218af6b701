// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
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
			var back []string
			informer := &handled{}
			keyOf := func(obj any) string { return obj.(metav1.Object).GetNamespace() + "/" + obj.(metav1.Object).GetName() }
			l := consistency.NewLagging(passStore(t.Context(), nil, nil), informer, keyOf, func(key string) { back = append(back, key) })

			event(informer.handler)
			require.Empty(t, back, "it was not put off")
			behind := true
			require.True(t, consistency.Lags(l, "ns/a", true, func() bool { return behind }))
			require.True(t, consistency.Lags(l, "ns/b", true, yes))
			behind = false
			event(informer.handler)
			event(informer.handler)
			require.Equal(t, []string{"ns/a"}, back)

			require.True(t, consistency.Lags(l, "ns/a", true, no), "the cache has caught up before it was noted")
			require.Equal(t, []string{"ns/a", "ns/a"}, back)

			behind = true
			require.True(t, consistency.Lags(l, "ns/a", true, func() bool { return behind }))
			require.False(t, consistency.Lags(l, "ns/a", false, yes))
			behind = false
			event(informer.handler)
			require.Len(t, back, 2, "it was reconciled meanwhile")
		})
	}
}

// A key that lags for several objects comes back when the last of them is seen. Whatever comes before would have it tried, and fail, once more: after 15
// tries the queue drops it.
func TestAKeyThatLagsForSeveralComesBackForTheLast(t *testing.T) {
	const slices = 30
	back, missing := 0, slices
	informer := &handled{}
	l := consistency.NewLagging(passStore(t.Context(), nil, nil), informer, func(any) string { return "ns/a" }, func(string) { back++ })
	require.True(t, consistency.Lags(l, "ns/a", true, func() bool { return missing > 0 }))
	for missing > 0 {
		require.Zero(t, back)
		missing--
		informer.handler.OnAdd(&corev1.Service{}, false)
	}
	require.Equal(t, 1, back)
	informer.handler.OnAdd(&corev1.Service{}, false)
	require.Equal(t, 1, back)
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
