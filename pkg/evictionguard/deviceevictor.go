// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"context"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

// deviceEvictor reads for a DeviceTaintGuard with what its controller hands over: cached from the caches, live from the
// server, by one request.
type deviceEvictor struct{ consistency.DeviceEvictor }

func (e deviceEvictor) cachedClaim(namespace, name string) (*resourceapi.ResourceClaim, error) {
	return e.Claims.ResourceClaims(namespace).Get(name)
}

func (e deviceEvictor) liveClaim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	c := e.Client.ResourceV1()
	if r := livereads.Once(c.RESTClient()); r != nil {
		claim := &resourceapi.ResourceClaim{}
		return claim, r.Namespace(namespace).Resource("resourceclaims").Name(name).Do(ctx).Into(claim)
	}
	return c.ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (e deviceEvictor) cachedRule(name string) (*resourceapi.DeviceTaintRule, error) {
	return e.Rules.Get(name)
}

func (e deviceEvictor) liveRule(ctx context.Context, name string) (*resourceapi.DeviceTaintRule, error) {
	c := e.Client.ResourceV1()
	if r := livereads.Once(c.RESTClient()); r != nil {
		rule := &resourceapi.DeviceTaintRule{}
		return rule, r.Resource("devicetaintrules").Name(name).Do(ctx).Into(rule)
	}
	return c.DeviceTaintRules().Get(ctx, name, metav1.GetOptions{})
}

func (e deviceEvictor) cachedSlices(pool consistency.DevicePool) ([]*resourceapi.ResourceSlice, error) {
	all, err := e.Slices.List(labels.Everything())
	return slices.DeleteFunc(all, func(s *resourceapi.ResourceSlice) bool { return !inPool(s, pool) }), err
}

func (e deviceEvictor) liveSlices(ctx context.Context, pool consistency.DevicePool) ([]*resourceapi.ResourceSlice, error) {
	selector := fields.Set{resourceapi.ResourceSliceSelectorDriver: pool.Driver, resourceapi.ResourceSliceSelectorPoolName: pool.Pool}
	options := metav1.ListOptions{FieldSelector: selector.String()}
	list, err := &resourceapi.ResourceSliceList{}, error(nil)
	if r := livereads.Once(e.Client.ResourceV1().RESTClient()); r != nil {
		err = r.Resource("resourceslices").VersionedParams(&options, scheme.ParameterCodec).Do(ctx).Into(list)
	} else {
		list, err = e.Client.ResourceV1().ResourceSlices().List(ctx, options)
	}
	if err != nil {
		return nil, err
	}
	var found []*resourceapi.ResourceSlice
	for i := range list.Items {
		if s := &list.Items[i]; inPool(s, pool) {
			found = append(found, s)
		}
	}
	return found, nil
}

func inPool(s *resourceapi.ResourceSlice, pool consistency.DevicePool) bool {
	return s.Spec.Driver == pool.Driver && s.Spec.Pool.Name == pool.Pool
}
