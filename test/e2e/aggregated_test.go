// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/test/aggregated"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	aggregatedNodes = 3
	aggregatedName  = "opaque-widgets"
	// heldUpSlack is by how much longer an owner may wait to be orphaned than before there was the API.
	heldUpSlack = 3 * time.Second

	ruleHeldUpByAPI = "held up by an API whose versions cannot be compared"
	ruleUnsaid      = "nothing says that versions cannot be compared"
)

// An aggregated API has resource versions that are not numbers, and its objects have owners of other APIs. Stock is not hurt: the garbage
// collector asks for equality only. Fresh KCM can prove nothing of such a cache, and has to say so; what depends on it goes on as on stock, and so does
// all else.
//
//conformance:kep-5504 Story 3: beside such an aggregated API a storage version migration goes on
var _ = describe(scenario{
	number: 60, title: "an aggregated API has resource versions that cannot be compared", label: long, idle: true, mutants: []without{{"opaque-graph", ruleHeldUpByAPI}},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: aggregatedNodes}}},
	timeout: 8 * time.Minute,
	run: func(ctx context.Context, r *run) {
		before := r.orphansAll(ctx, nil, "before")
		server := r.aggregate(ctx)
		// The collector, and quota, look every 30 s for what there is.
		r.eventually(ctx, "the garbage collector to watch it", func() (bool, error) { _, watches := server.Requests(); return watches > 0, nil })

		after := r.orphansAll(ctx, server, "after")
		r.figure("an owner was orphaned after, before there was the API and then", "%v, %v", rounded(before), rounded(after))
		if after > before+heldUpSlack {
			r.violate(oracle.Violation{Oracle: "L", Rule: ruleHeldUpByAPI, Object: "orphans", Time: time.Now(), Detail: fmt.Sprintf("%v, and %v before", after, before)})
		}
		owner := r.secretOwner(ctx, "collected")
		server.Add(metav1.NamespaceDefault, "collected", ownedBySecret(owner))
		gomega.Expect(r.Client.CoreV1().Secrets(metav1.NamespaceDefault).Delete(ctx, owner.Name, metav1.DeleteOptions{})).To(gomega.Succeed())
		r.figure("L widget collected after", "%v", rounded(r.converges(ctx, "the widget without an owner is gone", stepLimit, func() error {
			if _, there := server.Find(metav1.NamespaceDefault, "collected"); there {
				return fmt.Errorf("it is there")
			}
			return nil
		})))
		r.figure("L counted by a quota after", "%v", rounded(r.countedByQuota(ctx)))
		set := create(ctx, r, workload.DaemonSet("beside"))
		r.figure("L DaemonSet after", "%v", rounded(r.converges(ctx, "a DaemonSet", stepLimit, r.daemonSetDone(set, aggregatedNodes))))

		r.figure("L Secrets migrated after", "%v", rounded(r.migrates(ctx, "secrets")))

		lists, watches := server.Requests()
		object, there := server.Find(metav1.NamespaceDefault, "after")
		r.figure("V lists, watches there; versions such as", "%d, %d; %s", lists, watches, object.ResourceVersion)
		if !there || len(object.OwnerReferences) > 0 {
			r.violate(oracle.Violation{Oracle: "L", Rule: ruleOrphans, Object: "widget after", Time: time.Now(), Detail: fmt.Sprintf("there: %t, %v", there, object.OwnerReferences)})
		}
		r.saysIncomparable(ctx, aggregated.Resource.GroupResource())
	},
})

// aggregate puts an apiserver of its own behind the cluster's, which finds it by a name: addresses of this machine are not for EndpointSlices.
func (r *run) aggregate(ctx context.Context) *aggregated.Server {
	ginkgo.GinkgoHelper()
	certPEM, keyPEM, err := r.Cluster.ServingCert("aggregated")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	server, err := aggregated.Start(cert)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(server.Close)
	port := int32(server.Port())
	_, err = r.Client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: aggregatedName},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost", Ports: []corev1.ServicePort{{Port: port}}}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	client, err := dynamic.NewForConfig(r.Cluster.AdminConfig())
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	services := client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	name := aggregated.Resource.Version + "." + aggregated.Resource.Group
	_, err = services.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": aggregated.Resource.Group, "version": aggregated.Resource.Version, "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
			"insecureSkipTLSVerify": true,
			"service":               map[string]any{"namespace": metav1.NamespaceDefault, "name": aggregatedName, "port": int64(port)},
		},
	}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.eventually(ctx, "the API to be served", func() (bool, error) {
		_, err := client.Resource(aggregated.Resource).List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
	return server
}

func (r *run) secretOwner(ctx context.Context, name string) *corev1.Secret {
	ginkgo.GinkgoHelper()
	secret, err := r.Client.CoreV1().Secrets(metav1.NamespaceDefault).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return secret
}

func ownedBySecret(owner *corev1.Secret) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: owner.Name, UID: owner.UID}
}

// orphansAll deletes an owner whose dependents are to be orphaned, and returns how long it took until it was gone. One of them is a widget, if there is a server of these.
func (r *run) orphansAll(ctx context.Context, server *aggregated.Server, name string) time.Duration {
	ginkgo.GinkgoHelper()
	owner := r.secretOwner(ctx, name)
	maps, secrets := r.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault), r.Client.CoreV1().Secrets(metav1.NamespaceDefault)
	_, err := maps.Create(ctx, dependentMap(owner, name), metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	if server != nil {
		server.Add(metav1.NamespaceDefault, name, ownedBySecret(owner))
	}
	r.passes(ctx, "what was proven before to be too old", time.Now(), 2*proofAge)
	gomega.Expect(secrets.Delete(ctx, name, orphaning)).To(gomega.Succeed())
	took := r.converges(ctx, "the owner is gone", stepLimit, func() error {
		if _, err := secrets.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is still there: %w", err)
		}
		return nil
	})
	left, err := maps.Get(ctx, name, metav1.GetOptions{})
	if err != nil || len(left.OwnerReferences) > 0 {
		r.violate(oracle.Violation{Oracle: "L", Rule: ruleOrphans, Object: "ConfigMap " + name, Time: time.Now(), Detail: fmt.Sprint(err, left)})
	}
	return took
}

// countedByQuota makes a quota for widgets, and returns how long it took until it counts those that there are.
func (r *run) countedByQuota(ctx context.Context) time.Duration {
	ginkgo.GinkgoHelper()
	quotas := r.Client.CoreV1().ResourceQuotas(metav1.NamespaceDefault)
	counted := corev1.ResourceName("count/" + aggregated.Resource.GroupResource().String())
	_, err := quotas.Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "widgets"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("10")}}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return r.converges(ctx, "the quota counts the widgets", patience, func() error {
		quota, err := quotas.Get(ctx, "widgets", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if used, known := quota.Status.Used[counted]; !known || used.Value() != 1 {
			return fmt.Errorf("known: %t, %v", known, used.Value())
		}
		return nil
	})
}

// migrates has the storage version of a core resource migrated, and returns how long that took.
func (r *run) migrates(ctx context.Context, core string) time.Duration {
	ginkgo.GinkgoHelper()
	migrations := r.Client.StoragemigrationV1().StorageVersionMigrations()
	_, err := migrations.Create(ctx, &storagemigrationv1.StorageVersionMigration{ObjectMeta: metav1.ObjectMeta{Name: core},
		Spec: storagemigrationv1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Resource: core}}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return r.converges(ctx, "the migration succeeds", patience, func() error {
		m, err := migrations.Get(ctx, core, metav1.GetOptions{})
		if err == nil && !meta.IsStatusConditionTrue(m.Status.Conditions, string(storagemigrationv1.MigrationSucceeded)) {
			err = fmt.Errorf("%+v", m.Status)
		}
		return err
	})
}

// saysIncomparable is that P says so of the cache, and that it takes nothing for a restore.
func (r *run) saysIncomparable(ctx context.Context, resource schema.GroupResource) {
	ginkgo.GinkgoHelper()
	if r.Arm != rig.P {
		return
	}
	said := "nothing"
	if err := rig.Wait(ctx, patience, "the page to say so", func() (bool, error) {
		cache, there := cacheOf(readStalenessz(ctx, r), resource)
		said = fmt.Sprintf("%s, %s", cache.State, cache.Reason)
		return there && cache.Reason == string(freshness.ReasonIncomparable), nil
	}); err != nil {
		r.violate(oracle.Violation{Oracle: "M", Rule: ruleUnsaid, Object: resource.String(), Time: time.Now(), Detail: said})
	}
	r.figure("the page says", "%s", said)
	for _, cache := range readStalenessz(ctx, r).Caches {
		if cache.Protected && !complete(cache.State) {
			r.violate(oracle.Violation{Oracle: "M", Rule: ruleUnmeasured, Object: cache.Resource, Time: time.Now(), Detail: string(cache.State) + ", " + cache.Reason})
		}
	}
	if rewinds := series(ctx, r, "stale_controller_rewinds_total"); rewinds > 0 {
		r.violate(oracle.Violation{Oracle: "S3", Rule: ruleFalseRewind, Object: "/metrics", Time: time.Now(), Detail: fmt.Sprintf("stale_controller_rewinds_total is %v", rewinds)})
	}
}
