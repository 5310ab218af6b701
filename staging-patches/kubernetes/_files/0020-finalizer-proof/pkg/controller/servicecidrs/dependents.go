// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package servicecidrs

import (
	networkingapiv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	networkinginformers "k8s.io/client-go/informers/networking/v1"

	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// newDependents are the addresses in a ServiceCIDR, and the other ServiceCIDRs that may have them, too.
func (c *Controller) newDependents(cidrs networkinginformers.ServiceCIDRInformer, addresses networkinginformers.IPAddressInformer) consistencyutil.Dependents {
	return consistencyutil.NewDependents("service-cidr", c.queue.Add, map[schema.GroupResource]consistencyutil.LastSyncRVGetter{
		networkingapiv1.Resource("servicecidrs"): cidrs.Informer().GetStore(),
		networkingapiv1.Resource("ipaddresses"):  addresses.Informer().GetStore(),
	})
}
