// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedinformers

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
)

// Informers returns a function that lists the informers which the two factories of a ControllerContext
// run and controllers use, by the resource that the server's mapping names. It is meant for one goroutine.
func Informers(ctx context.Context, typed informers.SharedInformerFactory, observed informerfactory.InformerFactory, mapper meta.RESTMapper) func() map[schema.GroupVersionResource]stalenessmonitor.Informer {
	ended, end := context.WithCancel(ctx)
	end()
	type informer struct {
		of schema.GroupVersionResource
		stalenessmonitor.Informer
	}
	known := map[reflect.Type]informer{} // A factory keeps its informers.
	return func() map[schema.GroupVersionResource]stalenessmonitor.Informer {
		out := map[schema.GroupVersionResource]stalenessmonitor.Informer{}
		if f, ok := observed.(*observedFactory); ok {
			f.inUse(out)
		}
		// With a context that has ended it does not wait, and names those that were started.
		for t := range typed.WaitForCacheSyncWithContext(ended).Synced {
			i, ok := known[t]
			if !ok {
				gvr, err := resourceOf(t, mapper)
				if err != nil {
					klog.FromContext(ctx).V(2).Info("The resource of an informer is unknown; its cache is not measured", "type", t.String(), "err", err)
					continue // The server may serve it later.
				}
				generic, err := typed.ForResource(gvr)
				if err != nil {
					continue // client-go has no informer by this resource.
				}
				i = informer{gvr, generic.Informer()}
				known[t] = i
			}
			out[i.of] = i.Informer
		}
		return out
	}
}

// resourceOf asks the server's mapping for the resource of an informer's type.
func resourceOf(t reflect.Type, mapper meta.RESTMapper) (schema.GroupVersionResource, error) {
	object, ok := reflect.New(t.Elem()).Interface().(runtime.Object)
	if !ok {
		return schema.GroupVersionResource{}, fmt.Errorf("%s is no object", t)
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("kind of %s: %w", t, err)
	}
	mapping, err := mapper.RESTMapping(kinds[0].GroupKind(), kinds[0].Version)
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("resource of %s: %w", kinds[0], err)
	}
	return mapping.Resource, nil
}
