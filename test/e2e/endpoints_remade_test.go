// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are what it is about.

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

const (
	// byHand is a Service without a selector, whose Endpoints somebody makes.
	byHand = "by-hand"
	// ruleEndpoints is broken by the end of what somebody else has made and needs.
	ruleEndpoints = "endpoints of somebody else deleted"
)

var (
	services       = schema.GroupResource{Resource: "services"}
	endpoints      = schema.GroupResource{Resource: "endpoints"}
	endpointSlices = schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}
)

// A Service without a selector is made while services are held, and its Endpoints are replaced. Every stock arm takes the Service for
// gone and deletes them, and nobody makes them again. Once the Service is gone indeed, they must go.
var _ = describe(scenario{
	number: 45, title: "services held: the Endpoints of a new Service replaced", label: ordinary,
	hurts: rig.U1, rules: []string{ruleEndpoints}, mutants: []without{{"service-endpoint", ruleEndpoints}}, gaps: []int{23}, idle: true,
	options: rig.Options{Record: []schema.GroupResource{services, endpoints}},
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.unselected(ctx, "known")
		r.told(ctx, services)
		hold := r.inject(faultproxy.Target{Resource: services}, faultproxy.Hold{})
		r.unselected(ctx, byHand)
		r.endpointsByHand(ctx, "192.0.2.1")
		r.told(ctx, endpoints)
		r.passes(ctx, "what was proven before to be too old", time.Now(), proofAge+time.Second)

		both := r.inject(faultproxy.Target{Resource: endpoints}, faultproxy.Hold{})
		gomega.Expect(r.Client.CoreV1().Endpoints(metav1.NamespaceDefault).Delete(ctx, byHand, metav1.DeleteOptions{})).To(gomega.Succeed())
		made := r.endpointsByHand(ctx, "192.0.2.2")
		r.eventually(ctx, "both events to be held", func() (bool, error) { return both.Stats().Touched() >= 2, nil })
		both.Clear()
		replaced := time.Now()
		_ = rig.Wait(ctx, 5*time.Second, "the controller to delete them", func() (bool, error) {
			is, err := r.endpointsAre(ctx, made)
			return !is, err
		})
		kept, err := r.endpointsAre(ctx, made)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.figure("Endpoints", "%s after %v", map[bool]string{true: "there", false: "deleted"}[kept], rounded(time.Since(replaced)))
		if !kept {
			r.violate(oracle.Violation{Oracle: "S2", Rule: ruleEndpoints, Object: byHand, Time: time.Now(), Detail: "their Service is there"})
		}
		r.proves(hold, 1, proofAge+time.Second)
		r.putOff(ctx, "endpoint", services)
		hold.Clear()
		r.told(ctx, services)
		if kept {
			r.figure("mirrored after the hold, after", "%v", rounded(r.converges(ctx, "the Endpoints are mirrored", stepLimit, func() error {
				_, err := r.mirrored(ctx)
				return err
			})))
		}

		gomega.Expect(r.Client.CoreV1().Services(metav1.NamespaceDefault).Delete(ctx, byHand, metav1.DeleteOptions{})).To(gomega.Succeed())
		r.figure("deleted with the Service, after", "%v", rounded(r.converges(ctx, "the Endpoints go with their Service", stepLimit, func() error {
			if is, err := r.endpointsAre(ctx, made); is || err != nil {
				return fmt.Errorf("the Endpoints are there, %w", err)
			}
			return nil
		})))
	},
})

// The EndpointSlice that mirrors Endpoints is made again under its name by somebody else while EndpointSlices are held, and mirroring is
// turned off. Every stock arm deletes it.
var _ = describe(scenario{
	number: 46, title: "endpointslices held: a mirrored slice made again by somebody else", label: ordinary,
	hurts: rig.U1, rules: []string{ruleEndpoints}, mutants: []without{{"version-endpointslicemirroring", ruleEndpoints}}, gaps: []int{23}, idle: true,
	options: rig.Options{Record: []schema.GroupResource{services, endpoints, endpointSlices}},
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		slices := r.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
		r.unselected(ctx, byHand)
		r.endpointsByHand(ctx, "192.0.2.1")
		var slice *discoveryv1.EndpointSlice
		r.eventually(ctx, "the Endpoints to be mirrored", func() (bool, error) {
			var err error
			slice, err = r.mirrored(ctx)
			return err == nil, nil
		})
		r.told(ctx, endpointSlices)

		hold := r.inject(faultproxy.Target{Resource: endpointSlices}, faultproxy.Hold{})
		gomega.Expect(slices.Delete(ctx, slice.Name, metav1.DeleteOptions{})).To(gomega.Succeed())
		again := slice.DeepCopy()
		again.ObjectMeta = metav1.ObjectMeta{Name: slice.Name, Labels: map[string]string{discoveryv1.LabelServiceName: byHand, discoveryv1.LabelManagedBy: "somebody"}}
		_, err := slices.Create(ctx, again, metav1.CreateOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		_, err = r.Client.CoreV1().Endpoints(metav1.NamespaceDefault).Patch(ctx, byHand, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, discoveryv1.LabelSkipMirror), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		code := 0
		r.eventually(ctx, "the controller to delete the slice", func() (bool, error) {
			events, err := r.Audit()
			for _, e := range events {
				if e.Verb == "delete" && e.ObjectRef.Resource == endpointSlices.Resource && e.ObjectRef.Name == slice.Name && e.ServiceAccount() == "endpointslicemirroring-controller" {
					code = e.ResponseStatus.Code
				}
			}
			return code != 0, err
		})
		_, err = slices.Get(ctx, slice.Name, metav1.GetOptions{})
		gomega.Expect(err == nil || apierrors.IsNotFound(err)).To(gomega.BeTrue(), "%v", err)
		r.figure("slice", "%s; the deletion was answered %d", map[bool]string{true: "there", false: "deleted"}[err == nil], code)
		if err != nil {
			r.violate(oracle.Violation{Oracle: "S2", Rule: ruleEndpoints, Object: slice.Name, Time: time.Now(), Detail: "it is another one"})
		}
		r.proves(hold, 2, 0)
		hold.Clear()
		r.told(ctx, endpointSlices)
		if err == nil {
			r.converges(ctx, "the slice of somebody else stays", stepLimit, func() error {
				_, err := slices.Get(ctx, slice.Name, metav1.GetOptions{})
				return err
			})
		}
	},
})

// unselected makes a Service without a selector.
func (r *run) unselected(ctx context.Context, name string) {
	ginkgo.GinkgoHelper()
	_, err := r.Client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}

// endpointsByHand makes the Endpoints of byHand, as who runs it does.
func (r *run) endpointsByHand(ctx context.Context, ip string) types.UID {
	ginkgo.GinkgoHelper()
	made, err := r.Client.CoreV1().Endpoints(metav1.NamespaceDefault).Create(ctx, &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: byHand},
		Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: ip}}, Ports: []corev1.EndpointPort{{Port: 80}}}}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return made.UID
}

// endpointsAre reports whether the Endpoints of byHand are there, with this UID.
func (r *run) endpointsAre(ctx context.Context, uid types.UID) (bool, error) {
	now, err := r.Client.CoreV1().Endpoints(metav1.NamespaceDefault).Get(ctx, byHand, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && now.UID == uid, err
}

// mirrored is the EndpointSlice that mirrors the Endpoints of byHand.
func (r *run) mirrored(ctx context.Context) (*discoveryv1.EndpointSlice, error) {
	all, err := r.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + byHand})
	if err != nil {
		return nil, err
	}
	if len(all.Items) != 1 {
		return nil, fmt.Errorf("%d slices mirror %s", len(all.Items), byHand)
	}
	return &all.Items[0], nil
}
