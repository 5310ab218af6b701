// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/scheduling"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

// Protected is the nth object of a resource whose objects keep a finalizer while something uses them. Nothing does.
func Protected(resource string, n int) (*model.Resource, model.Object) {
	meta := metav1.ObjectMeta{Name: fmt.Sprint("protected-", n)}
	switch resource {
	case "servicecidrs":
		return model.ServiceCIDRs, &networkingv1.ServiceCIDR{ObjectMeta: meta, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{fmt.Sprintf("10.200.%d.0/24", n)}}}
	case "volumeattributesclasses":
		return model.VolumeClasses, &storagev1.VolumeAttributesClass{ObjectMeta: meta, DriverName: driver}
	case "podgroups":
		meta.Namespace, meta.Finalizers = Namespace, []string{scheduling.PodGroupProtectionFinalizer} // as the apiserver makes it
		return model.PodGroups, &schedulingv1beta1.PodGroup{ObjectMeta: meta}
	}
	panic("no such resource: " + resource)
}

// doForProtected does what a step of work on such an object says. It reports whether the step is one.
func (t *Traffic) doForProtected(s schedule.Step) bool {
	switch s.Action {
	case schedule.MakeProtected:
		t.server.Create(Protected(s.Target, s.N))
	case schedule.DeleteProtected:
		r, o := Protected(s.Target, s.N)
		t.server.Delete(r, o.GetNamespace(), o.GetName(), nil)
	default:
		return false
	}
	return true
}
