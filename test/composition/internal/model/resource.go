// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are served.

package model

import (
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is what the server stores. Nobody changes one that is stored.
type Object interface {
	runtime.Object
	metav1.Object
}

// Resource is one that the server serves.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Grace has deletions wait for somebody who removes the object, as a kubelet does.
	Grace bool

	object, list reflect.Type
}

// The resources that are served.
var (
	Pods         = resource[corev1.Pod, corev1.PodList](corev1.SchemeGroupVersion, "pods", "Pod", true)
	Nodes        = resource[corev1.Node, corev1.NodeList](corev1.SchemeGroupVersion, "nodes", "Node", false)
	Events       = resource[corev1.Event, corev1.EventList](corev1.SchemeGroupVersion, "events", "Event", true)
	ConfigMaps   = resource[corev1.ConfigMap, corev1.ConfigMapList](corev1.SchemeGroupVersion, "configmaps", "ConfigMap", true)
	Claims       = resource[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList](corev1.SchemeGroupVersion, "persistentvolumeclaims", "PersistentVolumeClaim", true)
	RCs          = resource[corev1.ReplicationController, corev1.ReplicationControllerList](corev1.SchemeGroupVersion, "replicationcontrollers", "ReplicationController", true)
	ReplicaSets  = resource[appsv1.ReplicaSet, appsv1.ReplicaSetList](appsv1.SchemeGroupVersion, "replicasets", "ReplicaSet", true)
	DaemonSets   = resource[appsv1.DaemonSet, appsv1.DaemonSetList](appsv1.SchemeGroupVersion, "daemonsets", "DaemonSet", true)
	StatefulSets = resource[appsv1.StatefulSet, appsv1.StatefulSetList](appsv1.SchemeGroupVersion, "statefulsets", "StatefulSet", true)
	Revisions    = resource[appsv1.ControllerRevision, appsv1.ControllerRevisionList](appsv1.SchemeGroupVersion, "controllerrevisions", "ControllerRevision", true)
	Jobs         = resource[batchv1.Job, batchv1.JobList](batchv1.SchemeGroupVersion, "jobs", "Job", true)
	CronJobs     = resource[batchv1.CronJob, batchv1.CronJobList](batchv1.SchemeGroupVersion, "cronjobs", "CronJob", true)
	Leases       = resource[coordv1.Lease, coordv1.LeaseList](coordv1.SchemeGroupVersion, "leases", "Lease", true)
	Namespaces   = resource[corev1.Namespace, corev1.NamespaceList](corev1.SchemeGroupVersion, "namespaces", "Namespace", false)
	Deployments  = resource[appsv1.Deployment, appsv1.DeploymentList](appsv1.SchemeGroupVersion, "deployments", "Deployment", true)
	Quotas       = resource[corev1.ResourceQuota, corev1.ResourceQuotaList](corev1.SchemeGroupVersion, "resourcequotas", "ResourceQuota", true)
	Budgets      = resource[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList](policyv1.SchemeGroupVersion, "poddisruptionbudgets", "PodDisruptionBudget", true)
	Services     = resource[corev1.Service, corev1.ServiceList](corev1.SchemeGroupVersion, "services", "Service", true)
	Endpoints    = resource[corev1.Endpoints, corev1.EndpointsList](corev1.SchemeGroupVersion, "endpoints", "Endpoints", true)
	Slices       = resource[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList](discoveryv1.SchemeGroupVersion, "endpointslices", "EndpointSlice", true)
	// ResourceClaims and ClaimTemplates are those of devices; Claims, above, of volumes.
	ResourceClaims = resource[resourcev1.ResourceClaim, resourcev1.ResourceClaimList](resourcev1.SchemeGroupVersion, "resourceclaims", "ResourceClaim", true)
	ClaimTemplates = resource[resourcev1.ResourceClaimTemplate, resourcev1.ResourceClaimTemplateList](resourcev1.SchemeGroupVersion, "resourceclaimtemplates", "ResourceClaimTemplate", true)
	// DeviceSlices give devices taints; of TaintRules and DeviceClasses there are none.
	TaintRules    = resource[resourcev1.DeviceTaintRule, resourcev1.DeviceTaintRuleList](resourcev1.SchemeGroupVersion, "devicetaintrules", "DeviceTaintRule", false)
	DeviceSlices  = resource[resourcev1.ResourceSlice, resourcev1.ResourceSliceList](resourcev1.SchemeGroupVersion, "resourceslices", "ResourceSlice", false)
	DeviceClasses = resource[resourcev1.DeviceClass, resourcev1.DeviceClassList](resourcev1.SchemeGroupVersion, "deviceclasses", "DeviceClass", false)
	Autoscalers   = resource[autoscalingv2.HorizontalPodAutoscaler, autoscalingv2.HorizontalPodAutoscalerList](autoscalingv2.SchemeGroupVersion, "horizontalpodautoscalers", "HorizontalPodAutoscaler", true)
	// PersistentVolumes and Attachments are what volumes are attached by; of Drivers and DriverNodes there are none.
	PersistentVolumes = resource[corev1.PersistentVolume, corev1.PersistentVolumeList](corev1.SchemeGroupVersion, "persistentvolumes", "PersistentVolume", false)
	Attachments       = resource[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList](storagev1.SchemeGroupVersion, "volumeattachments", "VolumeAttachment", false)
	Drivers           = resource[storagev1.CSIDriver, storagev1.CSIDriverList](storagev1.SchemeGroupVersion, "csidrivers", "CSIDriver", false)
	DriverNodes       = resource[storagev1.CSINode, storagev1.CSINodeList](storagev1.SchemeGroupVersion, "csinodes", "CSINode", false)
	// ServiceCIDRs, VolumeClasses and PodGroups keep a finalizer while something uses them; of Addresses there are none.
	ServiceCIDRs  = resource[networkingv1.ServiceCIDR, networkingv1.ServiceCIDRList](networkingv1.SchemeGroupVersion, "servicecidrs", "ServiceCIDR", false)
	Addresses     = resource[networkingv1.IPAddress, networkingv1.IPAddressList](networkingv1.SchemeGroupVersion, "ipaddresses", "IPAddress", false)
	VolumeClasses = resource[storagev1.VolumeAttributesClass, storagev1.VolumeAttributesClassList](storagev1.SchemeGroupVersion, "volumeattributesclasses", "VolumeAttributesClass", false)
	PodGroups     = resource[schedulingv1beta1.PodGroup, schedulingv1beta1.PodGroupList](schedulingv1beta1.SchemeGroupVersion, "podgroups", "PodGroup", true)
	// Widgets are a custom resource, of which only the metadata are read.
	Widgets = resource[metav1.PartialObjectMetadata, metav1.PartialObjectMetadataList](schema.GroupVersion{Group: "example.com", Version: "v1"}, "widgets", "Widget", true)
)

var all = []*Resource{Pods, Nodes, Events, ConfigMaps, Claims, RCs, ReplicaSets, DaemonSets, StatefulSets, Revisions, Jobs, CronJobs, Leases, Namespaces, Deployments, Quotas, Budgets, Services, Endpoints, Slices, ResourceClaims, ClaimTemplates, TaintRules, DeviceSlices, DeviceClasses, Autoscalers, PersistentVolumes, Attachments, Drivers, DriverNodes, ServiceCIDRs, Addresses, VolumeClasses, PodGroups, Widgets}

func resource[O, L any](gv schema.GroupVersion, name, kind string, namespaced bool) *Resource {
	return &Resource{
		GroupVersionResource: gv.WithResource(name), Kind: kind, Namespaced: namespaced, Grace: kind == "Pod",
		object: reflect.TypeFor[O](), list: reflect.TypeFor[L](),
	}
}

// gvk is the kind of the resource's objects.
func (r *Resource) gvk() schema.GroupVersionKind { return r.GroupVersion().WithKind(r.Kind) }

// Mapper maps the resources that are served.
func Mapper() meta.RESTMapper {
	var versions []schema.GroupVersion
	for _, r := range all {
		if !slices.Contains(versions, r.GroupVersion()) {
			versions = append(versions, r.GroupVersion())
		}
	}
	m := meta.NewDefaultRESTMapper(versions)
	for _, r := range all {
		scope := meta.RESTScope(meta.RESTScopeRoot)
		if r.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		m.AddSpecific(r.gvk(), r.GroupVersionResource, r.GroupVersion().WithResource(strings.ToLower(r.Kind)), scope)
	}
	return meta.MultiRESTMapper{m} // The singular of endpoints is endpoints: this one takes them for one.
}

// field returns a struct's field, or the zero value if there is none of the name.
func field(o Object, name string) reflect.Value {
	return reflect.ValueOf(o).Elem().FieldByName(name)
}

// keep has an object keep another's field.
func keep(o, from Object, name string) {
	if f := field(o, name); f.IsValid() {
		f.Set(field(from, name))
	}
}

// All returns every resource that is served.
func All() []*Resource { return all }
