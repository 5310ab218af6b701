// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// The resources that can be recorded.
var (
	Pods                   = schema.GroupResource{Resource: "pods"}
	Nodes                  = schema.GroupResource{Resource: "nodes"}
	DaemonSets             = schema.GroupResource{Group: "apps", Resource: "daemonsets"}
	ControllerRevisions    = schema.GroupResource{Group: "apps", Resource: "controllerrevisions"}
	Deployments            = schema.GroupResource{Group: "apps", Resource: "deployments"}
	ReplicaSets            = schema.GroupResource{Group: "apps", Resource: "replicasets"}
	StatefulSets           = schema.GroupResource{Group: "apps", Resource: "statefulsets"}
	Jobs                   = schema.GroupResource{Group: "batch", Resource: "jobs"}
	CronJobs               = schema.GroupResource{Group: "batch", Resource: "cronjobs"}
	ResourceClaims         = schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}
	ResourceSlices         = schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceslices"}
	DeviceTaintRules       = schema.GroupResource{Group: "resource.k8s.io", Resource: "devicetaintrules"}
	PersistentVolumeClaims = schema.GroupResource{Resource: "persistentvolumeclaims"}
	PersistentVolumes      = schema.GroupResource{Resource: "persistentvolumes"}
	ServiceCIDRs           = schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}
	IPAddresses            = schema.GroupResource{Group: "networking.k8s.io", Resource: "ipaddresses"}
	PodDisruptionBudgets   = schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}
	ResourceQuotas         = schema.GroupResource{Resource: "resourcequotas"}
	Leases                 = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
)

// InUse are the resources, besides pods, by which it is judged whether something may be deleted, or lose its finalizer, and what others may do.
var InUse = []schema.GroupResource{ReplicaSets, Jobs, CronJobs, PersistentVolumeClaims, PersistentVolumes, ServiceCIDRs, IPAddresses,
	PodDisruptionBudgets, ResourceQuotas}

// collection reads all namespaces of one resource, as typed objects or as metadata.
type collection struct {
	resource schema.GroupResource
	client   rest.Interface
	// metadata is in place of client where no more is recorded.
	metadata metadata.Getter
}

func newCollection(client kubernetes.Interface, resource schema.GroupResource) (collection, error) {
	byGroup := map[string]rest.Interface{
		"":                    client.CoreV1().RESTClient(),
		"apps":                client.AppsV1().RESTClient(),
		"batch":               client.BatchV1().RESTClient(),
		"coordination.k8s.io": client.CoordinationV1().RESTClient(),
		"discovery.k8s.io":    client.DiscoveryV1().RESTClient(),
		"networking.k8s.io":   client.NetworkingV1().RESTClient(),
		"policy":              client.PolicyV1().RESTClient(),
		"resource.k8s.io":     client.ResourceV1().RESTClient(),
		"storage.k8s.io":      client.StorageV1().RESTClient(),
	}
	c := byGroup[resource.Group]
	if c == nil {
		return collection{}, fmt.Errorf("recording %s: group %q is not known here", resource, resource.Group)
	}
	return collection{resource: resource, client: c}, nil
}

// list is a consistent read.
func (c collection) list(ctx context.Context) (rv string, objects []runtime.Object, err error) {
	if c.metadata != nil {
		list, err := c.metadata.List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", nil, fmt.Errorf("listing %s: %w", c.resource, err)
		}
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
		return list.ResourceVersion, objects, nil
	}
	list, err := c.client.Get().Resource(c.resource.Resource).Do(ctx).Get()
	if err != nil {
		return "", nil, fmt.Errorf("listing %s: %w", c.resource, err)
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return "", nil, fmt.Errorf("listing %s: %w", c.resource, err)
	}
	objects, err = meta.ExtractList(list)
	return m.GetResourceVersion(), objects, err
}

func (c collection) watch(ctx context.Context, rv string) (watch.Interface, error) {
	options := metav1.ListOptions{Watch: true, ResourceVersion: rv, AllowWatchBookmarks: true}
	if c.metadata != nil {
		return c.metadata.Watch(ctx, options)
	}
	return c.client.Get().Resource(c.resource.Resource).VersionedParams(&options, scheme.ParameterCodec).Watch(ctx)
}
