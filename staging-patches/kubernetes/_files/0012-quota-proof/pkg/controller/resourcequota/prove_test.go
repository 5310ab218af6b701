// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/controller-manager/pkg/informerfactory"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// handledFactory has informers that know how far their event handlers are.
type handledFactory struct {
	informerfactory.InformerFactory
}

func (f handledFactory) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	shared, err := f.InformerFactory.ForResource(resource)
	return handledGeneric{shared}, err
}

type handledGeneric struct{ informers.GenericInformer }

func (g handledGeneric) Informer() cache.SharedIndexInformer {
	return handledInformer{g.GenericInformer.Informer()}
}

type handledInformer struct{ cache.SharedIndexInformer }

func (i handledInformer) Handled() consistencyutil.LastSyncRVGetter {
	return handledCache{i.GetStore()}
}

type handledCache struct{ cache.Store }

// following notes what it is told to follow.
type following struct {
	consistencyutil.ConsistencyStore
	consistencyutil.ReadingStore
	caches map[schema.GroupResource]consistencyutil.LastSyncRVGetter
}

func (f *following) Follow(resource schema.GroupResource, cache consistencyutil.LastSyncRVGetter) {
	f.caches[resource] = cache
}

// Claims are listed from their cache; which of them count, an event handler keeps.
func TestDeviceClassesCountAsTheirHandlerWasTold(t *testing.T) {
	typed := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	factory := handledFactory{informerfactory.NewInformerFactory(typed, nil)}
	store := &following{caches: map[schema.GroupResource]consistencyutil.LastSyncRVGetter{}}
	qm := &QuotaMonitor{informerFactory: factory, consistencyStore: store}
	claims := resourceapi.SchemeGroupVersion.WithResource("resourceclaims")
	shared, err := factory.ForResource(claims)
	require.NoError(t, err)
	qm.follow(t.Context(), claims, shared)
	require.Equal(t, map[schema.GroupResource]consistencyutil.LastSyncRVGetter{
		resourceClaims: typed.Resource().V1().ResourceClaims().Informer().GetStore(),
		deviceClasses:  handledCache{typed.Resource().V1().DeviceClasses().Informer().GetStore()},
	}, store.caches)
}
