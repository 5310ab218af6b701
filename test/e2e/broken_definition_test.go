// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	besideNodes = 30
	// besideObjects are too many for a proof by a list; a watch is asked for.
	besideObjects = 250
	// besideRollouts are made before the definition breaks, and as many after it.
	besideRollouts = 3
	// besideBound is what the mean rollout may take longer than stock's, or than without the fault.
	besideBound = 2 * time.Second
	// longRetry is the Retry-After at which the fault is fully there; kube-apiserver raises it within a minute.
	longRetry = 20

	ruleSlower = oracle.RuleSlower
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	gadgets     = schema.GroupVersionResource{Group: "broken.fresh-kcm.io", Version: "v1", Resource: "gadgets"}
)

// One definition's conversion webhook is down. Its watch cache never becomes ready, and kube-apiserver answers
// each watch of it, and each list of all of it, 429 with a Retry-After of up to 30 s. That is nobody else's affair: from
// the time that a proof has been answered so, DaemonSets roll as fast, and the ages of their caches keep their bound.
// Stock is not hurt, as it asks for no proofs.
//
//conformance:crd-versions Goals: one that is slow or fails is the affair of its own resource alone
var _ = describe(scenario{
	number: 26, title: "the conversion webhook of one custom resource is down", label: ordinary, mutants: []without{{"throttle", ruleSlower}},
	options: besideOptions, idle: true, timeout: 8 * time.Minute,
	run: func(ctx context.Context, r *run) {
		free, broken := r.rolledBesideABrokenDefinition(ctx)
		if broken > 2*free && broken > free+besideBound {
			r.violate(oracle.Violation{Oracle: "F", Rule: ruleSlower, Object: "rollout", Time: time.Now(),
				Detail: fmt.Sprintf("%v, without the fault %v", broken, free)})
		}
	},
})

var besideOptions = rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: besideNodes}}}

// Oracle N: the same on stock and on Fresh KCM.
var _ = ginkgo.Describe("A rollout beside a broken definition", ginkgo.Label(long, "beside-broken"), func() {
	ginkgo.It("takes Fresh KCM no longer than stock", func(ctx context.Context) {
		took := map[rig.Arm]time.Duration{}
		for _, arm := range []rig.Arm{rig.U1, rig.P} {
			options := besideOptions
			options.Arm = arm
			fixture, err := rig.Start(ctx, options)
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			r := &run{Rig: fixture}
			func() {
				defer func() { gomega.Expect(r.Stop(ctx)).To(gomega.Succeed()) }()
				_, took[arm] = r.rolledBesideABrokenDefinition(ctx)
			}()
			for _, f := range r.figures {
				fmt.Printf("%s: %v\n", arm, f)
			}
			gomega.Expect(r.unproven).To(gomega.BeEmpty())
			gomega.Expect(r.violations).To(gomega.BeEmpty())
		}
		gomega.Expect(took[rig.P]).To(gomega.BeNumerically("<=", took[rig.U1]+besideBound))
	}, ginkgo.SpecTimeout(15*time.Minute))
})

// rolledBesideABrokenDefinition returns the mean times of rollouts without the fault and with it.
func (r *run) rolledBesideABrokenDefinition(ctx context.Context) (free, broken time.Duration) {
	ginkgo.GinkgoHelper()
	const name = "beside"
	ds := create(ctx, r, workload.DaemonSet(name, workload.MaxUnavailable(10)))
	objects := r.define(ctx)
	r.converges(ctx, "before the rollouts", patience, r.daemonSetDone(ds, besideNodes))
	r.eventually(ctx, "an informer of the custom resource", func() (bool, error) {
		return r.requestsFor(gadgets.GroupResource(), time.Time{}, time.Now())["watch by informers"] > 0, nil
	})
	if r.Arm == rig.P {
		r.measured(ctx)
	}
	free = r.rollouts(ctx, ds, name, "free")

	began := time.Now()
	r.breakConversion(ctx, objects)
	r.eventually(ctx, "lists to be answered 429", func() (bool, error) {
		err := r.listGadgets(ctx)
		seconds, ok := apierrors.SuggestsClientDelay(err)
		return apierrors.IsTooManyRequests(err) && ok && seconds >= longRetry, nil
	})
	r.figure("V 429 with Retry-After of 20 s or more", "after %.0fs", time.Since(began).Seconds())

	began = time.Now()
	stop := r.agesKept(ctx, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions, truth.Pods)
	if r.Arm == rig.P {
		r.refusedProof(ctx, began)
	}
	broken = r.rollouts(ctx, ds, name, "broken")
	// The requests are counted over a minute.
	select {
	case <-time.After(time.Until(began.Add(time.Minute))):
	case <-ctx.Done():
	}
	stop()
	until := time.Now()
	err := r.listGadgets(ctx)
	if !apierrors.IsTooManyRequests(err) {
		r.unproven = append(r.unproven, fmt.Sprintf("the definition is not broken any more: %v", err))
	}
	r.figure("rollout, mean: free, broken", "%.1fs, %.1fs", free.Seconds(), broken.Seconds())
	r.figure("requests for the broken resource in a minute", "%v", r.requestsFor(gadgets.GroupResource(), began, until))
	return free, broken
}

// define makes a definition of two versions, with objects that are stored in the older one.
func (r *run) define(ctx context.Context) dynamic.Interface {
	ginkgo.GinkgoHelper()
	objects, err := dynamic.NewForConfig(r.Cluster.AdminConfig())
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = objects.Resource(definitions).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": gadgets.GroupResource().String()},
		"spec": map[string]any{
			"group": gadgets.Group, "scope": "Cluster",
			"names":    map[string]any{"kind": "Gadget", "plural": gadgets.Resource},
			"versions": []any{gadgetVersion("v1", false), gadgetVersion("v1beta1", true)},
		},
	}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for i := range besideObjects {
		r.eventually(ctx, "the definition to be served", func() (bool, error) {
			err := createGadget(ctx, objects, "v1beta1", fmt.Sprint("gadget-", i))
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		})
	}
	return objects
}

func createGadget(ctx context.Context, objects dynamic.Interface, version, name string) error {
	_, err := objects.Resource(gadgets.GroupResource().WithVersion(version)).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gadgets.Group + "/" + version, "kind": "Gadget", "metadata": map[string]any{"name": name},
	}}, metav1.CreateOptions{})
	return err
}

func gadgetVersion(name string, storage bool) map[string]any {
	return map[string]any{
		"name": name, "served": true, "storage": storage,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
	}
}

// breakConversion has all objects need a conversion by somebody who is not there, but for the first, so that a consistent
// read of one object succeeds.
func (r *run) breakConversion(ctx context.Context, objects dynamic.Interface) {
	ginkgo.GinkgoHelper()
	patch := `{"spec": {
		"versions": [
			{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
			{"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}}
		],
		"conversion": {"strategy": "Webhook", "webhook": {
			"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"}
		}}
	}}`
	_, err := objects.Resource(definitions).Patch(ctx, gadgets.GroupResource().String(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.eventually(ctx, "an object that needs no conversion", func() (bool, error) {
		return createGadget(ctx, objects, gadgets.Version, "first") == nil, nil
	})
}

// listGadgets asks once: client-go would wait for as long as it is told to, and ask again.
func (r *run) listGadgets(ctx context.Context) error {
	return r.Client.Discovery().RESTClient().Get().AbsPath("apis", gadgets.Group, gadgets.Version, gadgets.Resource).MaxRetries(0).Do(ctx).Error()
}

// refusedProof waits until a proof of the broken resource has been answered 429 that was asked for after then.
func (r *run) refusedProof(ctx context.Context, then time.Time) {
	ginkgo.GinkgoHelper()
	r.eventually(ctx, "a proof of the broken resource to be answered 429", func() (bool, error) {
		events, err := r.Audit()
		return slices.ContainsFunc(events, func(e controlplane.AuditEvent) bool {
			return e.ObjectRef.Resource == gadgets.Resource && e.ObjectRef.APIGroup == gadgets.Group && strings.HasSuffix(e.UserAgent, " freshness") &&
				e.ResponseStatus.Code == http.StatusTooManyRequests && e.RequestReceivedTimestamp.After(then)
		}), err
	})
}

// rollouts returns the mean time of some.
func (r *run) rollouts(ctx context.Context, ds types.UID, name, tag string) time.Duration {
	ginkgo.GinkgoHelper()
	var took []time.Duration
	var sum time.Duration
	for i := range besideRollouts {
		began := time.Now()
		setImage(ctx, r, name, fmt.Sprintf("%s:%s-%d", workload.Image, tag, i))
		r.eventually(ctx, "the rollout to begin", func() (bool, error) { return r.daemonSetDone(ds, besideNodes)() != nil, nil })
		r.eventually(ctx, "the rollout to end", func() (bool, error) { return r.daemonSetDone(ds, besideNodes)() == nil, nil })
		took = append(took, rounded(time.Since(began)))
		sum += took[i]
	}
	r.figure("rollouts "+tag, "%v", took)
	return sum / besideRollouts
}

// agesKept looks at the ages of these caches until it is stopped; on stock there are none.
func (r *run) agesKept(ctx context.Context, resources ...schema.GroupResource) (stop func()) {
	if r.Arm != rig.P {
		return func() {}
	}
	oldest := map[string]float64{}
	stopLooking := every(ctx, lookEvery, func(ctx context.Context, _ int) error {
		defer ginkgo.GinkgoRecover()
		if ctx.Err() != nil {
			return nil
		}
		z := readStalenessz(context.WithoutCancel(ctx), r) // A look that has begun is not given up.
		for _, resource := range resources {
			c, ok := cacheOf(z, resource)
			if !ok {
				return fmt.Errorf("%s is not on the page", resource)
			}
			oldest[resource.Resource] = max(oldest[resource.Resource], ptr.Deref(c.AgeSeconds, math.Inf(1)))
		}
		return nil
	})
	return func() {
		ginkgo.GinkgoHelper()
		stopLooking()
		var ages []string
		for _, resource := range resources {
			age := oldest[resource.Resource]
			ages = append(ages, fmt.Sprintf("%s %.1fs", resource.Resource, age))
			if age > quietBound.Seconds() {
				r.violate(oracle.Violation{Oracle: "M", Rule: "age above its bound", Object: resource.String(), Time: time.Now(), Detail: fmt.Sprintf("%.1fs", age)})
			}
		}
		r.figure("oldest ages beside it", "%s", strings.Join(ages, ", "))
	}
}

// requestsFor counts what the KCM has asked for a resource, by verb and by who in it asked.
func (r *run) requestsFor(resource schema.GroupResource, from, to time.Time) map[string]int {
	ginkgo.GinkgoHelper()
	events, err := r.Audit()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	out := map[string]int{}
	for i := range events {
		e := &events[i]
		at := e.RequestReceivedTimestamp
		if !strings.HasPrefix(e.UserAgent, r.UserAgent()) || e.Stage != "ResponseComplete" && e.Stage != "ResponseStarted" ||
			e.ObjectRef.Resource != resource.Resource || e.ObjectRef.APIGroup != resource.Group || at.Before(from) || !at.Before(to) {
			continue
		}
		if e.Verb == "watch" && e.Stage == "ResponseComplete" && e.ResponseStatus.Code < 300 {
			continue // It was counted when it began.
		}
		by := "others"
		switch {
		case strings.HasSuffix(e.UserAgent, " freshness"):
			by = "proofs"
		case strings.Contains(e.UserAgent, "informers"):
			by = "informers"
		}
		out[e.Verb+" by "+by]++
	}
	return out
}
