// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

const exemptFlag = "stale-controller-consistency-exempt"

// exemptible are the controllers that have no gate of upstream's for their protection, by the names that metrics have, with
// those of --controllers.
var exemptible = map[string]string{
	"attachdetach":                     names.PersistentVolumeAttachDetachController,
	"cronjob":                          names.CronJobController,
	"csrcleaner":                       names.CertificateSigningRequestCleanerController,
	"deployment":                       names.DeploymentController,
	"disruption":                       names.DisruptionController,
	"endpointslice":                    names.EndpointSliceController,
	"garbagecollector":                 names.GarbageCollectorController,
	"persistentvolume-binder":          names.PersistentVolumeBinderController,
	"podgc":                            names.PodGarbageCollectorController,
	"podgroup-protection":              names.PodGroupProtectionController,
	"resourceclaim":                    names.ResourceClaimController,
	"resourcequota":                    names.ResourceQuotaController,
	"service-cidr":                     names.ServiceCIDRController,
	"tokencleaner":                     names.TokenCleanerController,
	"volumeattributesclass-protection": names.VolumeAttributesClassProtectionController,
}

// exemption is which controllers are to be as upstream's though StaleControllerConsistency is on.
type exemption struct{ flag []string }

func (e *exemption) addTo(fss *cliflag.NamedFlagSets) {
	fss.FlagSet("stale controllers").StringSliceVar(&e.flag, exemptFlag, nil, fmt.Sprintf(
		"Controllers that act on caches which are not proven fresh, as upstream's do, though the feature gate StaleControllerConsistency is on: %s. "+
			"Controllers that have a gate of their own, such as StaleControllerConsistencyDaemonSet, are taken out by that.", strings.Join(exemptibles(), ", ")))
}

// names returns the controllers, by the names that metrics have.
func (e *exemption) names() (sets.Set[string], error) {
	out := sets.New[string]()
	for _, name := range e.flag {
		i := slices.IndexFunc(exemptibles(), func(known string) bool { return name == known || name == exemptible[known] })
		if i < 0 {
			return nil, fmt.Errorf("invalid --%s: %q is not one of %s", exemptFlag, name, strings.Join(exemptibles(), ", "))
		}
		out.Insert(exemptibles()[i])
	}
	return out, nil
}

func exemptibles() []string { return slices.Sorted(maps.Keys(exemptible)) }

// except is a provider of stores whose exempt controllers have none.
func except(exempt sets.Set[string], provider consistency.Provider) consistency.Provider {
	return func(controller string, stores map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
		if exempt.Has(controller) {
			return consistency.NewNoopConsistencyStore()
		}
		return provider(controller, stores)
	}
}
