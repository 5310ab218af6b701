// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scaleOf is the subresource of replicas.
const scaleOf = "scale"

func notScaled(o Object) error {
	return Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, o.GetName()+" has no scale in the model", 0)
}

// scale is the scale of a Deployment or ReplicaSet.
func (r *Request) scale(o Object) ([]byte, error) {
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), CreationTimestamp: o.GetCreationTimestamp(),
	}}
	scale.SetGroupVersionKind(autoscalingv1.SchemeGroupVersion.WithKind("Scale"))
	var selector *metav1.LabelSelector
	switch x := o.(type) {
	case *appsv1.Deployment:
		scale.Spec.Replicas, scale.Status.Replicas, selector = *x.Spec.Replicas, x.Status.Replicas, x.Spec.Selector
	case *appsv1.ReplicaSet:
		scale.Spec.Replicas, scale.Status.Replicas, selector = *x.Spec.Replicas, x.Status.Replicas, x.Spec.Selector
	default:
		return nil, notScaled(o)
	}
	scale.Status.Selector = metav1.FormatLabelSelector(selector)
	return r.encoding.encode(scale), nil
}

// rescaled is the object with the replicas of the scale.
func rescaled(old, scale Object) (Object, error) {
	s, ok := scale.(*autoscalingv1.Scale)
	if !ok {
		return nil, Refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, "not a scale", 0)
	}
	changed := old.DeepCopyObject().(Object)
	switch x := changed.(type) {
	case *appsv1.Deployment:
		x.Spec.Replicas = &s.Spec.Replicas
	case *appsv1.ReplicaSet:
		x.Spec.Replicas = &s.Spec.Replicas
	default:
		return nil, notScaled(old)
	}
	return changed, nil
}
