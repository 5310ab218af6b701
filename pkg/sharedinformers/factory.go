// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedinformers

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	"k8s.io/client-go/informers/apiserverinternal"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/autoscaling"
	"k8s.io/client-go/informers/batch"
	"k8s.io/client-go/informers/certificates"
	"k8s.io/client-go/informers/coordination"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/discovery"
	"k8s.io/client-go/informers/events"
	"k8s.io/client-go/informers/extensions"
	"k8s.io/client-go/informers/flowcontrol"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/lifecycle"
	"k8s.io/client-go/informers/networking"
	"k8s.io/client-go/informers/node"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/rbac"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/informers/storagemigration"
	"k8s.io/client-go/tools/cache"
)

// wrappedFactory is a factory of typed informers for all namespaces that hands out what wrap makes of its informers. Its
// groups are upstream's, which ask it for their informers.
type wrappedFactory struct {
	informers.SharedInformerFactory
	wrap func(informer cache.SharedIndexInformer, of typeOrResource) cache.SharedIndexInformer
}

// typeOrResource is what an informer was asked for by: the type of its objects, or the resource.
type typeOrResource struct {
	objects  reflect.Type // nil: by the resource
	resource schema.GroupVersionResource
}

// Factory returns the factory with informers that know how far their handlers are. The factory must be one for all
// namespaces, without options for its lists.
func (h *Handlers) Factory(factory informers.SharedInformerFactory) informers.SharedInformerFactory {
	return wrappedFactory{factory, func(informer cache.SharedIndexInformer, _ typeOrResource) cache.SharedIndexInformer {
		return h.informer(informer)
	}}
}

// InformerFor implements informers.SharedInformerFactory.
func (f wrappedFactory) InformerFor(object runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return f.wrap(f.SharedInformerFactory.InformerFor(object, newFunc), typeOrResource{objects: reflect.TypeOf(object)})
}

// ForResource implements informers.SharedInformerFactory.
func (f wrappedFactory) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	informer, err := f.SharedInformerFactory.ForResource(gvr)
	if err != nil {
		return nil, err
	}
	return wrappedGeneric{informer, func(informer cache.SharedIndexInformer) cache.SharedIndexInformer {
		return f.wrap(informer, typeOrResource{resource: gvr})
	}}, nil
}

type wrappedGeneric struct {
	informers.GenericInformer
	wrap func(cache.SharedIndexInformer) cache.SharedIndexInformer
}

// Informer implements informers.GenericInformer.
func (g wrappedGeneric) Informer() cache.SharedIndexInformer {
	return g.wrap(g.GenericInformer.Informer())
}

// Admissionregistration implements informers.SharedInformerFactory.
func (f wrappedFactory) Admissionregistration() admissionregistration.Interface {
	return admissionregistration.New(f, metav1.NamespaceAll, nil)
}

// Internal implements informers.SharedInformerFactory.
func (f wrappedFactory) Internal() apiserverinternal.Interface {
	return apiserverinternal.New(f, metav1.NamespaceAll, nil)
}

// Apps implements informers.SharedInformerFactory.
func (f wrappedFactory) Apps() apps.Interface { return apps.New(f, metav1.NamespaceAll, nil) }

// Autoscaling implements informers.SharedInformerFactory.
func (f wrappedFactory) Autoscaling() autoscaling.Interface {
	return autoscaling.New(f, metav1.NamespaceAll, nil)
}

// Batch implements informers.SharedInformerFactory.
func (f wrappedFactory) Batch() batch.Interface { return batch.New(f, metav1.NamespaceAll, nil) }

// Certificates implements informers.SharedInformerFactory.
func (f wrappedFactory) Certificates() certificates.Interface {
	return certificates.New(f, metav1.NamespaceAll, nil)
}

// Coordination implements informers.SharedInformerFactory.
func (f wrappedFactory) Coordination() coordination.Interface {
	return coordination.New(f, metav1.NamespaceAll, nil)
}

// Core implements informers.SharedInformerFactory.
func (f wrappedFactory) Core() core.Interface { return core.New(f, metav1.NamespaceAll, nil) }

// Discovery implements informers.SharedInformerFactory.
func (f wrappedFactory) Discovery() discovery.Interface {
	return discovery.New(f, metav1.NamespaceAll, nil)
}

// Events implements informers.SharedInformerFactory.
func (f wrappedFactory) Events() events.Interface { return events.New(f, metav1.NamespaceAll, nil) }

// Extensions implements informers.SharedInformerFactory.
func (f wrappedFactory) Extensions() extensions.Interface {
	return extensions.New(f, metav1.NamespaceAll, nil)
}

// Flowcontrol implements informers.SharedInformerFactory.
func (f wrappedFactory) Flowcontrol() flowcontrol.Interface {
	return flowcontrol.New(f, metav1.NamespaceAll, nil)
}

// Lifecycle implements informers.SharedInformerFactory.
func (f wrappedFactory) Lifecycle() lifecycle.Interface {
	return lifecycle.New(f, metav1.NamespaceAll, nil)
}

// Networking implements informers.SharedInformerFactory.
func (f wrappedFactory) Networking() networking.Interface {
	return networking.New(f, metav1.NamespaceAll, nil)
}

// Node implements informers.SharedInformerFactory.
func (f wrappedFactory) Node() node.Interface { return node.New(f, metav1.NamespaceAll, nil) }

// Policy implements informers.SharedInformerFactory.
func (f wrappedFactory) Policy() policy.Interface { return policy.New(f, metav1.NamespaceAll, nil) }

// Rbac implements informers.SharedInformerFactory.
func (f wrappedFactory) Rbac() rbac.Interface { return rbac.New(f, metav1.NamespaceAll, nil) }

// Resource implements informers.SharedInformerFactory.
func (f wrappedFactory) Resource() resource.Interface {
	return resource.New(f, metav1.NamespaceAll, nil)
}

// Scheduling implements informers.SharedInformerFactory.
func (f wrappedFactory) Scheduling() scheduling.Interface {
	return scheduling.New(f, metav1.NamespaceAll, nil)
}

// Storage implements informers.SharedInformerFactory.
func (f wrappedFactory) Storage() storage.Interface { return storage.New(f, metav1.NamespaceAll, nil) }

// Storagemigration implements informers.SharedInformerFactory.
func (f wrappedFactory) Storagemigration() storagemigration.Interface {
	return storagemigration.New(f, metav1.NamespaceAll, nil)
}
