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
			require.True(t, consistency.Lags(l, "ns/a", true, yes))
			require.True(t, consistency.Lags(l, "ns/b", true, yes))
			event(informer.handler)
			event(informer.handler)
			require.Equal(t, []string{"ns/a"}, back)

			require.True(t, consistency.Lags(l, "ns/a", true, no), "the cache has caught up before it was noted")
			require.Equal(t, []string{"ns/a", "ns/a"}, back)

			require.True(t, consistency.Lags(l, "ns/a", true, yes))
			require.False(t, consistency.Lags(l, "ns/a", false, yes))
			event(informer.handler)
			require.Len(t, back, 2, "it was reconciled meanwhile")
		})
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
