// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import "k8s.io/kubernetes/cmd/kube-controller-manager/names"

var controllers = append(append(append(append([]Controller{}, workloads...), nodes...), storage...), cluster...)

// nodes are the controllers of nodes and of what is on them.
var nodes = []Controller{
	{Name: names.NodeLifecycleController, Client: "node-controller", Rules: []Rule{
		{Verbs: "update patch", Resources: "nodes nodes/status", Mode: View, Scenarios: []int{6, 7, 8, 9, 10, 25, 54},
			Why: "Leases and nodes are proven, or read live, before a node is marked or tainted. One that is well is untainted at once."},
		{Verbs: "update patch", Resources: "pods/status", Mode: View, Scenarios: []int{6, 54}, Why: "The nodes are proven, or read live, before. Pods are marked not ready after their node was."},
	}},
	{Name: names.TaintEvictionController, Client: "node-controller", Rules: []Rule{
		{Verbs: "delete", Resources: "pods", Mode: View, Scenarios: []int{4}, Preconditions: byUID, Why: "The nodes are proven, or read live, before. It carries the pod's UID."},
		{Verbs: "update patch", Resources: "pods/status", Mode: View, Scenarios: []int{4}, Why: "Likewise."},
	}},
	{Name: names.DeviceTaintEvictionController, Client: names.DeviceTaintEvictionController, Rules: []Rule{
		{Verbs: "delete", Resources: "pods", Mode: View, Scenarios: []int{4}, Preconditions: byUID, Why: "Rules, claims and slices are proven, or read live, before. It carries the pod's UID."},
		{Verbs: "update patch", Resources: "pods/status", Mode: View, Scenarios: []int{4}, Why: "Likewise."},
		{Verbs: "update patch", Resources: "devicetaintrules.resource.k8s.io/status", Mode: Exempt, Why: repeatable},
	}},
	{Name: names.NodeIpamController, Client: "node-controller", Rules: []Rule{
		{Verbs: "patch", Resources: "nodes nodes/status", Mode: InCode, Why: "The node is read live before it gets a range. The apiserver refuses to change one."},
		{Verbs: "delete", Resources: "nodes", Mode: Exempt, Why: "It is permitted for the sake of cloud providers, and never sent."},
	}},
	{Name: names.TTLController, Client: "ttl-controller", Rules: []Rule{
		{Verbs: "patch update", Resources: "nodes", Mode: Exempt, Why: repeatable},
	}},
	{Name: names.ResourceClaimController, Client: "resource-claim-controller", Rules: []Rule{
		{Verbs: "create", Resources: "resourceclaims.resource.k8s.io", Mode: Exempt, Why: "Its own writes are kept until the cache shows them."},
		{Verbs: "update patch", Resources: "resourceclaims.resource.k8s.io resourceclaims.resource.k8s.io/status", Mode: View, Scenarios: []int{23, 38},
			Why: "That a pod needs the claim no more is proven, or read live, before its reservation is dropped. " + refused},
		{Verbs: "delete", Resources: "resourceclaims.resource.k8s.io", Mode: View, Tests: []string{"TestResourceClaims"}, Preconditions: byUID, Why: "Likewise. It carries the UID."},
		{Verbs: "update patch", Resources: "pods/status podgroups.scheduling.k8s.io/status", Mode: Exempt, Why: repeatable},
	}},
	{Name: names.ResourcePoolStatusRequestController, Client: "resourcepoolstatusrequest-controller", Rules: []Rule{
		{Verbs: "delete", Resources: "resourcepoolstatusrequests.resource.k8s.io", Mode: InCode, Preconditions: byUID, Why: "It carries the UID."},
		{Verbs: "update patch", Resources: "resourcepoolstatusrequests.resource.k8s.io/status", Mode: Exempt, Why: repeatable},
	}},
}

// storage are the controllers of volumes.
var storage = []Controller{
	{Name: names.PersistentVolumeBinderController, Client: "persistent-volume-binder", Rules: []Rule{
		{Verbs: "create", Resources: "persistentvolumes", Mode: Exempt, Why: "The volume has the name of its claim: a second one is refused."},
		{Verbs: "update", Resources: "persistentvolumes persistentvolumes/status persistentvolumeclaims persistentvolumeclaims/status", Mode: InCode, Why: refused},
		{Verbs: "delete", Resources: "persistentvolumes", Mode: InCode, Scenarios: []int{52}, Preconditions: byUID,
			Why: "The volume and its claim are read live before: the volume is still that of the claim for which it was to be reclaimed, and the claim is gone. It carries the UID."},
		{Verbs: "create delete", Resources: "pods", Mode: Exempt, Why: "They recycle a volume that was read live before."},
	}},
	{Name: names.PersistentVolumeAttachDetachController, Client: "attachdetach-controller", Rules: []Rule{
		{Verbs: "create", Resources: "volumeattachments.storage.k8s.io", Mode: Exempt, Why: "It has the name of its volume and node: a second one is refused."},
		{Verbs: "delete", Resources: "volumeattachments.storage.k8s.io", Mode: View, Scenarios: []int{40},
			Why: "The nodes are proven before a detachment is forced. For any other the node is read live before."},
		{Verbs: "patch update", Resources: "nodes/status", Mode: Exempt, Why: repeatable},
	}},
	{Name: names.PersistentVolumeExpanderController, Client: "expand-controller", Rules: []Rule{
		{Verbs: "update patch", Resources: "persistentvolumes persistentvolumeclaims/status", Mode: Exempt, Why: "A volume only grows, to a size that was asked for."},
	}},
	{Name: names.PersistentVolumeClaimProtectionController, Client: "pvc-protection-controller", Rules: []Rule{
		{Verbs: "update", Resources: "persistentvolumeclaims persistentvolumeclaims/status", Mode: InCode, Why: "The pods are listed live before the finalizer is taken off."},
	}},
	{Name: names.PersistentVolumeProtectionController, Client: "pv-protection-controller", Rules: []Rule{
		{Verbs: "update", Resources: "persistentvolumes", Mode: InCode, Why: refused},
	}},
	{Name: names.VolumeAttributesClassProtectionController, Client: "volumeattributesclass-protection-controller", Rules: []Rule{
		{Verbs: "update", Resources: "volumeattributesclasses.storage.k8s.io", Mode: Bounded, Scenarios: []int{42},
			Why: "Claims and volumes are proven before the finalizer is taken off, for 5 min at most. " + refused},
	}},
	{Name: names.EphemeralVolumeController, Client: "ephemeral-volume-controller", Rules: []Rule{
		{Verbs: "create", Resources: "persistentvolumeclaims", Mode: Exempt, Why: "The claim has the name of its pod and volume: a second one is refused."},
	}},
	{Name: names.SELinuxWarningController, Client: names.SELinuxWarningController},
}

// cluster are the controllers of services, of accounts, and of the cluster itself.
var cluster = []Controller{
	{Name: names.EndpointsController, Client: "endpoint-controller", Rules: []Rule{
		{Verbs: "create update", Resources: "endpoints", Mode: Open, Why: "Endpoints are those of a cache of pods that may be stale."},
		{Verbs: "delete", Resources: "endpoints", Mode: View, Scenarios: []int{45}, Preconditions: asRead,
			Why: "That the Service is gone is proven, or read live, before. It carries the UID and the resource version."},
	}},
	{Name: names.EndpointSliceController, Client: "endpointslice-controller", Rules: []Rule{
		{Verbs: "create update delete", Resources: "endpointslices.discovery.k8s.io", Mode: Open, Scenarios: []int{43, 44},
			Why: "Endpoints are those of a cache of pods that may be stale. A node that the cache lacks is looked up on the server before its pods are left out. " +
				"It waits to start while a cache is stale, for 60 s at most (44)."},
	}},
	{Name: names.EndpointSliceMirroringController, Client: "endpointslicemirroring-controller", Rules: []Rule{
		{Verbs: "create update", Resources: "endpointslices.discovery.k8s.io", Mode: Open, Why: "Slices are those of a cache of Endpoints that may be stale."},
		{Verbs: "delete", Resources: "endpointslices.discovery.k8s.io", Mode: InCode, Scenarios: []int{46}, Preconditions: asRead, Why: "It carries the UID and the resource version of the slice that was read."},
	}},
	{Name: names.ServiceCIDRController, Client: "service-cidrs-controller", Rules: []Rule{
		{Verbs: "patch update", Resources: "servicecidrs.networking.k8s.io", Mode: Bounded, Scenarios: []int{41},
			Why: "IP addresses and other ranges are proven before the finalizer is taken off, for 5 min at most. It carries the UID then."},
		{Verbs: "patch update", Resources: "servicecidrs.networking.k8s.io/status", Mode: Exempt, Why: repeatable},
	}},
	{Name: names.NamespaceController, Client: "namespace-controller", Rules: []Rule{
		{Verbs: "delete deletecollection", Resources: "*", Mode: InCode, Why: "The namespace is read live, and is terminating, which is final."},
		{Verbs: "update", Resources: "namespaces/finalize namespaces/status", Mode: InCode, Why: refused},
	}},
	{Name: names.ServiceAccountController, Client: "service-account-controller", Rules: []Rule{
		{Verbs: "create", Resources: "serviceaccounts", Mode: Exempt, Why: "A second one of the name is refused."},
	}},
	{Name: names.ServiceAccountTokenController, Client: "tokens-controller", Rules: []Rule{
		{Verbs: "update", Resources: "secrets serviceaccounts", Mode: InCode, Why: "The Secret and the account are read live before. " + refused},
		{Verbs: "delete", Resources: "secrets", Mode: InCode, Preconditions: byUID, Why: "The account is read live before, and it carries the UID."},
	}},
	{Name: names.LegacyServiceAccountTokenCleanerController, Client: "legacy-service-account-token-cleaner", Rules: []Rule{
		{Verbs: "patch", Resources: "secrets", Mode: InCode, Why: "It carries the UID, and is for tokens that nobody has used for a year."},
		{Verbs: "delete", Resources: "secrets", Mode: InCode, Preconditions: []Precondition{ResourceVersion},
			Why: "It carries the resource version, as stock upstream's does: a token that is used gets another. It is for tokens that were marked a year ago."},
	}},
	{Name: names.BootstrapSignerController, Client: "bootstrap-signer", Rules: []Rule{
		{Verbs: "update", Resources: "configmaps", Mode: InCode, Why: refused},
	}},
	{Name: names.TokenCleanerController, Client: "token-cleaner", Rules: []Rule{
		{Verbs: "delete", Resources: "secrets", Mode: InCode, Scenarios: []int{39}, Preconditions: asRead, Why: "It carries the UID and the resource version of the token that had expired."},
	}},
	{Name: names.RootCACertificatePublisherController, Client: "root-ca-cert-publisher", Rules: []Rule{
		{Verbs: "create update", Resources: "configmaps", Mode: Exempt, Why: repeatable},
	}},
	{Name: names.KubeAPIServerClusterTrustBundlePublisherController, Client: "kube-apiserver-serving-clustertrustbundle-publisher", Rules: []Rule{
		{Verbs: "create update delete", Resources: "clustertrustbundles.certificates.k8s.io", Mode: Exempt, Why: repeatable},
	}},
	{Name: names.CertificateSigningRequestSigningController, Client: "certificate-controller", Rules: []Rule{
		{Verbs: "update", Resources: "certificatesigningrequests.certificates.k8s.io/status", Mode: InCode, Why: refused},
	}},
	{Name: names.CertificateSigningRequestApprovingController, Client: "certificate-controller", Rules: []Rule{
		{Verbs: "update", Resources: "certificatesigningrequests.certificates.k8s.io/approval", Mode: InCode, Why: refused},
		{Verbs: "create", Resources: "subjectaccessreviews.authorization.k8s.io", Mode: Exempt, Why: "It asks, and changes nothing."},
	}},
	{Name: names.CertificateSigningRequestCleanerController, Client: "certificate-controller", Rules: []Rule{
		{Verbs: "delete", Resources: "certificatesigningrequests.certificates.k8s.io", Mode: InCode, Scenarios: []int{53}, Preconditions: asRead, Why: "It carries the UID and the resource version of the request that was too old."},
	}},
	{Name: names.PodCertificateRequestCleanerController, Client: "podcertificaterequestcleaner", Rules: []Rule{
		{Verbs: "delete", Resources: "podcertificaterequests.certificates.k8s.io", Mode: InCode, Preconditions: byUID, Why: "It carries the UID."},
	}},
	{Name: names.ClusterRoleAggregationController, Client: "clusterrole-aggregation-controller", Rules: []Rule{
		{Verbs: "update patch", Resources: "clusterroles.rbac.authorization.k8s.io", Mode: Exempt, Why: repeatable},
	}},
	{Name: names.ValidatingAdmissionPolicyStatusController, Client: names.ValidatingAdmissionPolicyStatusController, Rules: []Rule{
		{Verbs: "patch update", Resources: "validatingadmissionpolicies.admissionregistration.k8s.io/status", Mode: Exempt, Why: repeatable},
	}},
	{Name: names.StorageVersionGarbageCollectorController, Client: "storage-version-garbage-collector", Rules: []Rule{
		{Verbs: "update patch delete", Resources: "storageversions.internal.apiserver.k8s.io storageversions.internal.apiserver.k8s.io/status", Mode: InCode,
			Why: "The identity of the apiserver is read live before."},
	}},
	{Name: names.StorageVersionMigratorController, Client: names.StorageVersionMigratorController, Rules: []Rule{
		{Verbs: "patch", Resources: "*", Mode: InCode, Why: "It changes nothing in an object, and waits until the cache is as new as the migration."},
		{Verbs: "update patch", Resources: "storageversionmigrations.storagemigration.k8s.io/status", Mode: Exempt, Why: repeatable},
	}},
}
