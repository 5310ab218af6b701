// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// always are the namespaces that are there without an object.
var always = []string{"", metav1.NamespaceDefault, corev1.NamespaceNodeLease}

// mayCreateIn refuses to create what is in a namespace that is gone, or going.
func (s *Server) mayCreateIn(name string) error {
	namespace, found := s.stores[Namespaces].objects[types.NamespacedName{Name: name}]
	switch {
	case slices.Contains(always, name):
		return nil
	case !found:
		return Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "namespaces \""+name+"\" not found", 0)
	case namespace.GetDeletionTimestamp() == nil:
		return nil
	}
	err := Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "the namespace is being terminated", 0).(*refusal)
	err.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}
	return err
}

// finalizing says that an object waits for finalizers.
func finalizing(o Object) bool {
	namespace, ok := o.(*corev1.Namespace)
	return len(o.GetFinalizers()) > 0 || ok && len(namespace.Spec.Finalizers) > 0
}

// deleteAll deletes all objects of a resource in a namespace.
func (s *Server) deleteAll(r *Request) ([]byte, error) {
	opts, err := r.deleteOptions()
	if err != nil {
		return nil, Refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), 0)
	}
	selects, err := selector(r)
	if err != nil {
		return nil, err
	}
	for _, o := range slices.Collect(s.stores[r.Resource].asOf(s.rv, s.rv)) {
		if selects(o) {
			s.terminate(r.Resource, o, opts.GracePeriodSeconds, opts.PropagationPolicy)
		}
	}
	status := &metav1.Status{Status: metav1.StatusSuccess}
	status.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("Status"))
	status.APIVersion = "v1"
	return r.encoding.encode(status), nil
}

// Discover is what the server's discovery says of the namespaced resources.
func Discover() ([]*metav1.APIResourceList, error) {
	return discover(func(r *Resource) bool {
		return r.Namespaced && r != CronJobs && r != Services && r != Slices && r != ConfigMaps && !apart(r) // which run in histories of their own
	}), nil
}

// DiscoverAll is what the server's discovery says of all but autoscalers and what is about devices, volumes and finalizers.
func DiscoverAll() []*metav1.APIResourceList {
	return discover(func(r *Resource) bool { return !apart(r) })
}

// apart says that a resource is of autoscalers or about devices, volumes or finalizers, for which histories of their own run, without a garbage collector.
func apart(r *Resource) bool {
	return slices.Contains([]*Resource{ResourceClaims, ClaimTemplates, TaintRules, DeviceSlices, DeviceClasses, Autoscalers, PersistentVolumes, Attachments, Drivers, DriverNodes, ServiceCIDRs, Addresses, VolumeClasses, PodGroups}, r)
}

func discover(of func(*Resource) bool) (out []*metav1.APIResourceList) {
	byGroup := map[string]*metav1.APIResourceList{}
	for _, r := range all {
		if !of(r) {
			continue
		}
		version := r.GroupVersion().String()
		if byGroup[version] == nil {
			byGroup[version] = &metav1.APIResourceList{GroupVersion: version}
			out = append(out, byGroup[version])
		}
		byGroup[version].APIResources = append(byGroup[version].APIResources, metav1.APIResource{
			Name: r.GroupVersionResource.Resource, Namespaced: r.Namespaced, Kind: r.Kind, Group: r.Group, Version: r.Version,
			Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
		})
	}
	return out
}
