// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedinformers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/controller-manager/pkg/informerfactory"
)

const wait, tick = 10 * time.Second, time.Millisecond

// metadataScheme is a scheme for a fake client of metadata, which adds to it: client-go's own is read by other goroutines.
func metadataScheme(t *testing.T) *runtime.Scheme {
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	return scheme
}

func TestInformers(t *testing.T) {
	typed := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	metadata := metadatainformer.NewSharedInformerFactory(metadatafake.NewSimpleMetadataClient(metadataScheme(t)), 0)
	observed := NewHandlers().ObserveFactory(informerfactory.NewInformerFactory(typed, metadata))

	// A plural that nobody would guess.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.AddSpecific(corev1.SchemeGroupVersion.WithKind("Endpoints"), corev1.SchemeGroupVersion.WithResource("endpoints"), corev1.SchemeGroupVersion.WithResource("endpoints"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)

	list := Informers(t.Context(), typed, observed, mapper)
	require.Empty(t, list())

	typed.Core().V1().Pods().Informer()
	typed.Core().V1().Endpoints().Informer() //nolint:staticcheck // its plural is what is tested
	typed.Discovery().V1().EndpointSlices().Informer()
	require.Empty(t, list(), "none has been started")
	typed.Start(t.Context().Done())
	got := list()
	require.Len(t, got, 2)
	require.Contains(t, got, corev1.SchemeGroupVersion.WithResource("endpoints"))
	require.Same(t, typed.Core().V1().Pods().Informer().GetStore(), got[corev1.SchemeGroupVersion.WithResource("pods")].GetStore())

	mapper.Add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), meta.RESTScopeNamespace)
	require.Contains(t, list(), discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), "once the server serves it")

	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	informer, err := observed.ForResource(widgets)
	require.NoError(t, err)
	require.Same(t, informer.Informer().GetStore(), list()[widgets].GetStore())

	// As the garbage collector and quota do, each in a goroutine of its own.
	use := func() (stop func()) {
		ended, stopCh := make(chan struct{}), make(chan struct{})
		informer, err := observed.ForResource(widgets)
		require.NoError(t, err)
		go func() {
			defer close(ended)
			informer.Informer().GetController().Run(stopCh)
		}()
		require.Eventually(t, func() bool { return users(observed, widgets) > 0 }, wait, tick)
		return func() {
			close(stopCh)
			<-ended
		}
	}
	for range 2 {
		collector := use()
		quota := use()
		require.Eventually(t, func() bool { return users(observed, widgets) == 2 }, wait, tick)
		collector()
		require.Contains(t, list(), widgets, "quota still uses it")
		quota()
		require.NotContains(t, list(), widgets, "nobody does any more")
		_, err = observed.ForResource(widgets)
		require.NoError(t, err)
		require.NotContains(t, list(), widgets, "to ask is not to use")
	}
	stop := use()
	require.Contains(t, list(), widgets)
	stop()
}

func users(observed informerfactory.InformerFactory, gvr schema.GroupVersionResource) int {
	f := observed.(*observedFactory)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[gvr].users
}
