// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are what it is about.

package endpoint

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/klog/v2"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// newConsistencyStore puts the Services back on the queue whose Endpoints wait to be deleted.
func (e *Controller) newConsistencyStore(services coreinformers.ServiceInformer) consistencyutil.ConsistencyStore {
	store := consistencyutil.NewIfProvided("endpoint", nil)
	consistencyutil.OnReady(store, e.queue.Add)
	consistencyutil.Follow(store, v1.Resource("services"), services.Informer().GetStore())
	return store
}

// deleteEndpoints deletes those of a Service that the cache lacks: as they were read, and if the Service is gone by a proven cache or
// by the server. If that cannot be told now, the Service comes back to the queue.
func (e *Controller) deleteEndpoints(ctx context.Context, key, namespace, name string) error {
	if !consistencyutil.Proves(e.consistencyStore) {
		return e.client.CoreV1().Endpoints(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	}
	ctx = consistencyutil.WithReading(ctx, e.consistencyStore, key)
	endpoints, err := e.endpointsLister.Endpoints(namespace).Get(name)
	if errors.IsNotFound(err) {
		endpoints, err = e.client.CoreV1().Endpoints(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	if errors.IsNotFound(err) {
		consistencyutil.ForgetReading(e.consistencyStore, key)
	}
	if err != nil {
		return err
	}
	err = e.deleteAsRead(ctx, endpoints)
	if errors.IsConflict(err) { // The cache may lack what was last written.
		if live, getErr := e.client.CoreV1().Endpoints(namespace).Get(ctx, name, metav1.GetOptions{}); getErr == nil && live.ResourceVersion != endpoints.ResourceVersion {
			err = e.deleteAsRead(consistencyutil.WithReading(ctx, e.consistencyStore, key), live)
		}
	}
	return err
}

// deleteAsRead deletes the Endpoints, as they were read, if their Service is gone.
func (e *Controller) deleteAsRead(ctx context.Context, endpoints *v1.Endpoints) error {
	if !e.serviceGone(ctx, endpoints) {
		klog.FromContext(ctx).V(4).Info("Keeping Endpoints whose Service may not be gone", "endpoints", klog.KObj(endpoints))
		return nil
	}
	options := consistencyutil.OnlyAsRead(e.consistencyStore, endpoints, &metav1.DeleteOptions{})
	return e.client.CoreV1().Endpoints(endpoints.Namespace).Delete(ctx, endpoints.Name, *options)
}

// serviceGone reports whether the Service of the Endpoints is gone. Endpoints that this controller has made are made again for a
// Service that comes a moment later. Nobody makes others again, so for these the cache must be as new as they are.
func (e *Controller) serviceGone(ctx context.Context, endpoints metav1.Object) bool {
	return consistencyutil.Decide(ctx, consistencyutil.Decision{
		Resource: v1.Resource("services"),
		Now:      endpoints.GetLabels()[LabelManagedBy] != ControllerName,
		Cached: func() bool {
			_, err := e.serviceLister.Services(endpoints.GetNamespace()).Get(endpoints.GetName())
			return errors.IsNotFound(err)
		},
		Read: func(ctx context.Context) (bool, error) {
			_, err := e.client.CoreV1().Services(endpoints.GetNamespace()).Get(ctx, endpoints.GetName(), metav1.GetOptions{})
			if errors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		},
	})
}
