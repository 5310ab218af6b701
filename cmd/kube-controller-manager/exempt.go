// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

const exemptFlag = "stale-controller-consistency-exempt"

// controllersOf are the controllers that ask for a store, by the names under which they do: those that metrics have.
var controllersOf = map[string]string{
	"attachdetach":                     names.PersistentVolumeAttachDetachController,
	"cronjob":                          names.CronJobController,
	"csrcleaner":                       names.CertificateSigningRequestCleanerController,
	"daemonset":                        names.DaemonSetController,
	"deployment":                       names.DeploymentController,
	"devicetainteviction":              names.DeviceTaintEvictionController,
	"disruption":                       names.DisruptionController,
	"endpoint":                         names.EndpointsController,
	"endpointslice":                    names.EndpointSliceController,
	"endpointslicemirroring":           names.EndpointSliceMirroringController,
	"garbagecollector":                 names.GarbageCollectorController,
	"horizontalpodautoscaler":          names.HorizontalPodAutoscalerController,
	"job":                              names.JobController,
	"nodelifecycle":                    names.NodeLifecycleController,
	"persistentvolume-binder":          names.PersistentVolumeBinderController,
	"podgc":                            names.PodGarbageCollectorController,
	"podgroup-protection":              names.PodGroupProtectionController,
	"replicaset":                       names.ReplicaSetController,
	"replicationcontroller":            names.ReplicationControllerController,
	"resourceclaim":                    names.ResourceClaimController,
	"resourcequota":                    names.ResourceQuotaController,
	"service-cidr":                     names.ServiceCIDRController,
	"statefulset":                      names.StatefulSetController,
	"tainteviction":                    names.TaintEvictionController,
	"tokencleaner":                     names.TokenCleanerController,
	"volumeattributesclass-protection": names.VolumeAttributesClassProtectionController,
}

// upstreamHasStore are those of them that have a store of upstream's, for which there are feature gates.
var upstreamHasStore = sets.New("daemonset", "horizontalpodautoscaler", "job", "nodelifecycle", "replicaset", "statefulset")

// exemption is which controllers are to be as upstream's though StaleControllerConsistency is on.
type exemption struct{ flag []string }

func (e *exemption) addTo(fss *cliflag.NamedFlagSets) {
	fss.FlagSet("stale controllers").StringSliceVar(&e.flag, exemptFlag, nil,
		"Controllers, as --controllers names them, that act on caches which are not proven fresh and start before theirs are, "+
			"as upstream's do, though the feature gate StaleControllerConsistency is on.")
}

// names returns the controllers, as app.KnownControllers names them.
func (e *exemption) names() (sets.Set[string], error) {
	known, aliases := sets.New(app.KnownControllers()...), app.ControllerAliases()
	out := sets.New[string]()
	for _, name := range e.flag {
		full := cmp.Or(aliases[name], controllersOf[name], name)
		if !known.Has(full) {
			return nil, fmt.Errorf("invalid --%s: %q is no controller: name one as --controllers does, such as %s", exemptFlag, name, names.PodGarbageCollectorController)
		}
		out.Insert(full)
	}
	return out, nil
}

// except is a provider of stores whose exempt controllers have what they have without a provider.
func except(exempt sets.Set[string], provider consistency.Provider) consistency.Provider {
	return func(controller string, stores map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
		switch {
		case !exempt.Has(controllersOf[controller]):
			return provider(controller, stores)
		case upstreamHasStore.Has(controller):
			return consistency.NewConsistencyStore(stores)
		}
		return consistency.NewNoopConsistencyStore()
	}
}
