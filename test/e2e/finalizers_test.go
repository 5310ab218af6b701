// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	// finalized is the object that is deleted while user uses it.
	finalized, user = "finalized", "user"
	// goneWithin is how long a stock arm has to take the finalizer off: it waits for 10 s itself before that of a ServiceCIDR.
	goneWithin = 10*time.Second + stepLimit
	// ruleInUse is broken by the end of an object that is in use.
	ruleInUse = "object gone while it is in use"
)

// protected is a kind of object that keeps a finalizer while something uses it.
type protected struct {
	kind, controller, mutant string
	// held is the resource of what uses the object.
	held    schema.GroupResource
	options rig.Options
	// create makes the object, remove deletes it, and get reads it. use makes what uses it, ends deletes that.
	create, use, remove, ends func(ctx context.Context, r *run) error
	get                       func(ctx context.Context, r *run) (metav1.Object, error)
}

var _ = finalizerHeld(41, protected{
	kind: "ServiceCIDR", controller: "service-cidr", mutant: "proof-service-cidr", held: truth.IPAddresses,
	create: func(ctx context.Context, r *run) error {
		_, err := r.Client.NetworkingV1().ServiceCIDRs().Create(ctx, &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: finalized},
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.200.0.0/24"}}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		// The apiserver gives addresses of it a while later.
		r.eventually(ctx, "a Service with an address of the ServiceCIDR", func() (bool, error) {
			return createService(ctx, r, "first", "10.200.0.10") == nil, nil
		})
		return r.Client.CoreV1().Services(metav1.NamespaceDefault).Delete(ctx, "first", metav1.DeleteOptions{})
	},
	use: func(ctx context.Context, r *run) error { return createService(ctx, r, user, "10.200.0.20") },
	get: func(ctx context.Context, r *run) (metav1.Object, error) {
		return r.Client.NetworkingV1().ServiceCIDRs().Get(ctx, finalized, metav1.GetOptions{})
	},
	remove: func(ctx context.Context, r *run) error {
		return r.Client.NetworkingV1().ServiceCIDRs().Delete(ctx, finalized, metav1.DeleteOptions{})
	},
	ends: func(ctx context.Context, r *run) error {
		return r.Client.CoreV1().Services(metav1.NamespaceDefault).Delete(ctx, user, metav1.DeleteOptions{})
	},
})

var _ = finalizerHeld(42, protected{
	kind: "VolumeAttributesClass", controller: "volumeattributesclass-protection", mutant: "proof-vac-protection", held: truth.PersistentVolumeClaims,
	create: func(ctx context.Context, r *run) error {
		_, err := r.Client.StorageV1().VolumeAttributesClasses().Create(ctx, &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: finalized},
			DriverName: "example.com", Parameters: map[string]string{"speed": "high"}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return createClaim(ctx, r, "other", nil) // So that there is something to be told of.
	},
	use: func(ctx context.Context, r *run) error { return createClaim(ctx, r, user, new(finalized)) },
	get: func(ctx context.Context, r *run) (metav1.Object, error) {
		return r.Client.StorageV1().VolumeAttributesClasses().Get(ctx, finalized, metav1.GetOptions{})
	},
	remove: func(ctx context.Context, r *run) error {
		return r.Client.StorageV1().VolumeAttributesClasses().Delete(ctx, finalized, metav1.DeleteOptions{})
	},
	ends: func(ctx context.Context, r *run) error {
		return r.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Delete(ctx, user, metav1.DeleteOptions{})
	},
})

var _ = finalizerHeld(42, protected{
	kind: "PodGroup", controller: "podgroup-protection", mutant: "proof-podgroup-protection", held: truth.Pods,
	options: rig.Options{
		Cluster: controlplane.Options{APIServer: controlplane.ProcessOptions{FeatureGates: map[string]bool{"GenericWorkload": true},
			Args: []string{"--runtime-config=scheduling.k8s.io/v1beta1=true"}}},
		KCMArgs: []string{"--feature-gates=GenericWorkload=true"},
	},
	create: func(ctx context.Context, r *run) error {
		_, err := r.Client.SchedulingV1beta1().PodGroups(metav1.NamespaceDefault).Create(ctx, &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: finalized},
			Spec: schedulingv1beta1.PodGroupSpec{SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		r.createPod(ctx, "other", 0) // So that there is something to be told of.
		return nil
	},
	use: func(ctx context.Context, r *run) error {
		pod := workload.Orphan(user, user, "")
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new(finalized)}
		_, err := r.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	},
	get: func(ctx context.Context, r *run) (metav1.Object, error) {
		return r.Client.SchedulingV1beta1().PodGroups(metav1.NamespaceDefault).Get(ctx, finalized, metav1.GetOptions{})
	},
	remove: func(ctx context.Context, r *run) error {
		return r.Client.SchedulingV1beta1().PodGroups(metav1.NamespaceDefault).Delete(ctx, finalized, metav1.DeleteOptions{})
	},
	ends: func(ctx context.Context, r *run) error {
		return r.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, user, *metav1.NewDeleteOptions(0))
	},
})

// finalizerHeld declares the scenario of one kind. Something begins to use an object while that is held, and the object is deleted. Every
// stock arm takes the finalizer off, and the object is gone. Once nothing uses it any more it has to go.
func finalizerHeld(number int, p protected) bool {
	p.options.Record = []schema.GroupResource{truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions}
	if p.held != truth.Pods {
		p.options.Record = append(p.options.Record, p.held)
	}
	return describe(scenario{
		number: number, title: fmt.Sprintf("%s held: a %s deleted that has come into use", p.held.Resource, p.kind), label: ordinary,
		hurts: rig.U1, rules: []string{ruleInUse}, mutants: []without{{p.mutant, ruleInUse}}, gaps: []int{21}, idle: true,
		options: p.options, timeout: 4 * time.Minute,
		run: p.run,
	})
}

func (p protected) run(ctx context.Context, r *run) {
	succeeds := func(err error) { gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred()) }
	gone := func() (bool, error) {
		_, err := p.get(ctx, r)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	}
	succeeds(p.create(ctx, r))
	r.eventually(ctx, "the finalizer", func() (bool, error) {
		object, err := p.get(ctx, r)
		return err == nil && len(object.GetFinalizers()) > 0, err
	})
	r.told(ctx, p.held)

	hold := r.inject(faultproxy.Target{Resource: p.held}, faultproxy.Hold{})
	succeeds(p.use(ctx, r))
	r.passes(ctx, "what was proven before to be too old", time.Now(), 2*proofAge)
	succeeds(p.remove(ctx, r))
	_ = rig.Wait(ctx, goneWithin, "a decision on the finalizer", func() (bool, error) {
		is, err := gone()
		if r.Arm != rig.P || is || err != nil {
			return is, err
		}
		return series(ctx, r, "stale_controller_unproven_actions_total", fmt.Sprintf("controller=%q", p.controller)) > 0, nil
	})
	if r.Arm == rig.P {
		r.passes(ctx, "the controller to look again", time.Now(), proofAge+time.Second)
	}
	r.proves(hold, 1, 0)
	is, err := gone()
	succeeds(err)
	r.figure("gone while it is in use", "%t", is)
	if is {
		r.violate(oracle.Violation{Oracle: "S2", Rule: ruleInUse, Object: p.kind, Time: time.Now()})
	}
	r.putOff(ctx, p.controller, p.held)
	hold.Clear()
	r.told(ctx, p.held)
	if is {
		return
	}
	r.passes(ctx, "the controller to look with a cache that has caught up", time.Now(), time.Second)
	is, err = gone()
	succeeds(err)
	if is {
		r.violate(oracle.Violation{Oracle: "S2", Rule: ruleInUse, Object: p.kind, Time: time.Now(), Detail: "after the hold"})
		return
	}
	succeeds(p.ends(ctx, r))
	r.figure("gone once it is not in use after", "%v", rounded(r.converges(ctx, "the object is gone", stepLimit, func() error {
		if is, err := gone(); !is || err != nil {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})))
}

func createClaim(ctx context.Context, r *run, name string, class *string) error {
	_, err := r.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeAttributesClassName: class, StorageClassName: new("none"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}, metav1.CreateOptions{})
	return err
}

func createService(ctx context.Context, r *run, name, address string) error {
	_, err := r.Client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{ClusterIP: address, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
	return err
}
