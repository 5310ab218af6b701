// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// metadataScheme is a scheme for a fake client of metadata, which adds to it: client-go's own is read by other goroutines.
func metadataScheme(t *testing.T) *runtime.Scheme {
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	return scheme
}

func TestNothingIsKeptOfWhatIsNotFollowed(t *testing.T) {
	w, err := New(t.Context(), &rest.Config{Host: "https://127.0.0.1:1"}, meta.NewDefaultRESTMapper(nil), transport.NewWatches(), nil)
	require.NoError(t, err)
	metadata := metadatainformer.NewSharedInformerFactory(metadatafake.NewSimpleMetadataClient(metadataScheme(t)), 0)
	for i := range 20 {
		gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: fmt.Sprintf("things%d", i)}
		for range 2 {
			informer := metadata.ForResource(gvr).Informer()
			w.follow(gvr, informer)
			_, known := w.proofs.prover.Lookup(gvr.GroupResource())
			require.True(t, known)
			w.unfollow(gvr, informer)
			_, err := w.proofs.prover.Fencer().Fence(t.Context(), gvr.GroupResource())
			require.ErrorIs(t, err, rvtracker.ErrUnprovable)
		}
	}
}

// countingMapper counts the questions.
type countingMapper struct {
	meta.RESTMapper
	asked int
}

func (m *countingMapper) KindFor(gvr schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	m.asked++
	return m.RESTMapper.KindFor(gvr)
}

func TestScopeIsNotAskedForEachFence(t *testing.T) {
	known := meta.NewDefaultRESTMapper(nil)
	known.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	known.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	synctest.Test(t, func(t *testing.T) {
		mapper := &countingMapper{RESTMapper: known}
		p := &proofs{mapper: mapper, scopes: map[schema.GroupVersionResource]scope{}}
		for resource, want := range map[string][2]bool{"pods": {true, true}, "nodes": {false, true}, "gone": {false, false}} {
			mapper.asked = 0
			for range 100 {
				namespaced, known := p.namespaced(corev1.SchemeGroupVersion.WithResource(resource))
				require.Equal(t, want, [2]bool{namespaced, known}, resource)
			}
			require.Equal(t, 1, mapper.asked)
			time.Sleep(scopeFor + time.Second)
			p.namespaced(corev1.SchemeGroupVersion.WithResource(resource))
			require.Equal(t, 2, mapper.asked, "a definition may come back with another scope")
		}
	})
}
