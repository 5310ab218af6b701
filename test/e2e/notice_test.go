// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

const (
	// noticeSamples is how many watches are held, at least, if that is noticed soon.
	noticeSamples = 100
	// noticeEvery is how often the page is looked at.
	noticeEvery = 200 * time.Millisecond
	// busyEvery is how far the events of a busy resource are apart.
	busyEvery = 300 * time.Millisecond
)

// How soon a held watch is noticed, of many resources at once, each at a random moment of its period: p99 of at
// least a hundred busy ones. The figures are those of B8.
var (
	_ = describe(noticing("busy", noticeBusy, 2*stalenessPeriod, func(k kind) bool { return k.busy }))
	_ = describe(noticing("quiet", noticeQuiet, 2*stalenessPeriod, func(k kind) bool { return !k.busy }))
)

func noticing(name string, bound, spread time.Duration, chosen func(kind) bool) scenario {
	return scenario{
		number: 11, title: "p99 of the time to notice a held watch, " + name + " resources", label: long, gate: gates.MonitorInformerStaleness,
		options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 20}}}, idle: true,
		timeout: 15 * time.Minute,
		run: func(ctx context.Context, r *run) {
			if r.Arm != rig.P {
				r.untold(ctx)
				return
			}
			var resources []kind
			for _, k := range kinds() {
				if chosen(k) {
					resources = append(resources, k)
				}
			}
			objects := createKinds(ctx, r, resources)
			stop := keepBusy(ctx, objects, resources)
			defer stop()
			r.measured(ctx)
			// Of a quiet cache that no protected controller reads the page says when it is asked about.
			byLimit := map[time.Duration][]time.Duration{}
			limits := map[schema.GroupVersionResource]time.Duration{}
			longest := bound
			for _, k := range resources {
				limits[k.resource] = bound
				if !k.busy {
					limits[k.resource] = r.noticeLimit(ctx, k.resource.GroupResource()).Round(10 * time.Second)
				}
				longest = max(longest, limits[k.resource])
			}
			rounds := noticeSamples/len(resources) + 1
			if longest > bound {
				rounds = 1 // It takes minutes.
			}
			for range rounds {
				for i, d := range r.noticeRound(ctx, objects, resources, longest, spread) {
					limit := limits[resources[i].resource]
					byLimit[limit] = append(byLimit[limit], d)
				}
			}
			for limit, took := range byLimit {
				slices.Sort(took)
				p99 := took[len(took)-1-len(took)/100]
				r.figure(fmt.Sprintf("noticed, at most %v: samples, median, p99, most", limit), "%d, %.1fs, %.1fs, %.1fs", len(took), took[len(took)/2].Seconds(), p99.Seconds(), took[len(took)-1].Seconds())
				if p99 > limit {
					r.violate(oracle.Violation{Oracle: "M", Rule: ruleUnnoticed, Object: name, Time: time.Now(), Detail: fmt.Sprintf("p99 %v, want %v", p99, limit)})
				}
			}
		},
	}
}

// noticeRound holds the watches of all resources, each from another moment on, and returns after what times
// that was noticed.
func (r *run) noticeRound(ctx context.Context, objects dynamic.Interface, resources []kind, bound, spread time.Duration) []time.Duration {
	ginkgo.GinkgoHelper()
	began := time.Now()
	var wg sync.WaitGroup
	since := make([]time.Time, len(resources))
	faults := make([]*faultproxy.Fault, len(resources))
	for i, k := range resources {
		delay := spread + rand.N(spread) // What the last round has brought about is over by then.
		wg.Go(func() {
			defer ginkgo.GinkgoRecover()
			time.Sleep(time.Until(began.Add(delay)))
			faults[i] = r.inject(informersOf(k.resource.GroupResource()), faultproxy.Hold{})
			if !k.busy {
				gomega.Expect(k.touch(ctx, objects, fmt.Sprint(began.UnixNano()))).To(gomega.Succeed())
			}
			since[i] = time.Now()
		})
	}
	noticed := map[schema.GroupResource]time.Time{}
	gomega.Expect(rig.Wait(ctx, 2*spread+2*bound, "all held watches to be noticed", func() (bool, error) {
		for _, c := range readStalenessz(ctx, r).Caches {
			resource := schema.GroupResource{Group: c.Group, Resource: c.Resource}
			if _, known := noticed[resource]; late(c.State) && !known {
				noticed[resource] = time.Now()
			}
		}
		time.Sleep(noticeEvery)
		return !slices.ContainsFunc(resources, func(k kind) bool { return noticed[k.resource.GroupResource()].IsZero() }), nil
	})).To(gomega.Succeed())
	wg.Wait()
	var took []time.Duration
	for i, k := range resources {
		took = append(took, max(0, noticed[k.resource.GroupResource()].Sub(since[i])))
		r.provesQuietly(faults[i])
		faults[i].Clear()
	}
	for _, k := range resources {
		r.healed(ctx, k.resource.GroupResource())
	}
	return took
}

// keepBusy changes the objects that are to be busy until it is stopped.
func keepBusy(ctx context.Context, objects dynamic.Interface, resources []kind) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, k := range resources {
		if k.busy {
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					_ = k.touch(ctx, objects, fmt.Sprint(i))
					select {
					case <-ctx.Done():
					case <-time.After(busyEvery):
					}
				}
			})
		}
	}
	return func() { cancel(); wg.Wait() }
}

// provesQuietly is proves without a figure.
func (r *run) provesQuietly(fault *faultproxy.Fault) {
	if s := fault.Stats(); s.Touched() == 0 {
		r.unproven = append(r.unproven, "nothing was held of "+s.Resource.String())
	}
}

// kind is a type of which an object can be made that makes no controller do anything.
type kind struct {
	resource schema.GroupVersionResource
	object   unstructured.Unstructured
	busy     bool
}

const noticeName = "noticed"

// kinds are resource, kind, "cluster" if it is not namespaced, "busy" if it is to be, and what the object has besides a name.
func kinds() []kind {
	ginkgo.GinkgoHelper()
	var out []kind
	for line := range strings.SplitSeq(strings.TrimSpace(kindTable), "\n") {
		head, body, _ := strings.Cut(line, " {")
		words := strings.Fields(head)
		gv, err := schema.ParseGroupVersion(words[0])
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		k := kind{resource: gv.WithResource(words[1]), busy: slices.Contains(words, "busy")}
		gomega.Expect(json.Unmarshal([]byte("{"+body), &k.object.Object)).To(gomega.Succeed(), line)
		k.object.SetGroupVersionKind(gv.WithKind(words[2]))
		k.object.SetName(noticeName)
		if !slices.Contains(words, "cluster") {
			k.object.SetNamespace(metav1.NamespaceDefault)
		}
		out = append(out, k)
	}
	return out
}

const (
	kindTemplate = `{"metadata":{"labels":{"app":"noticed"}},"spec":{"containers":[{"name":"main","image":"example.com/none"}]}}`
	kindSelector = `{"matchLabels":{"app":"noticed"}}`
	kindTable    = `
v1 configmaps ConfigMap busy {}
v1 secrets Secret busy {}
v1 serviceaccounts ServiceAccount busy {}
v1 limitranges LimitRange busy {"spec":{"limits":[]}}
v1 podtemplates PodTemplate busy {"template":` + kindTemplate + `}
rbac.authorization.k8s.io/v1 roles Role busy {}
rbac.authorization.k8s.io/v1 rolebindings RoleBinding busy {"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"noticed"}}
scheduling.k8s.io/v1 priorityclasses PriorityClass cluster busy {"value":1}
networking.k8s.io/v1 networkpolicies NetworkPolicy busy {"spec":{"podSelector":{}}}
coordination.k8s.io/v1 leases Lease busy {}
v1 resourcequotas ResourceQuota {"spec":{"hard":{}}}
v1 replicationcontrollers ReplicationController {"spec":{"replicas":0,"selector":{"app":"noticed"},"template":` + kindTemplate + `}}
v1 services Service {"spec":{"ports":[{"port":80}]}}
v1 namespaces Namespace cluster {}
v1 persistentvolumeclaims PersistentVolumeClaim {"spec":{"storageClassName":"none","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}
apps/v1 deployments Deployment {"spec":{"replicas":0,"selector":` + kindSelector + `,"template":` + kindTemplate + `}}
apps/v1 replicasets ReplicaSet {"spec":{"replicas":0,"selector":` + kindSelector + `,"template":` + kindTemplate + `}}
apps/v1 statefulsets StatefulSet {"spec":{"replicas":0,"serviceName":"none","selector":` + kindSelector + `,"template":` + kindTemplate + `}}
apps/v1 controllerrevisions ControllerRevision {"revision":1,"data":{}}
batch/v1 cronjobs CronJob {"spec":{"suspend":true,"schedule":"0 0 1 1 *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"example.com/none"}]}}}}}}
policy/v1 poddisruptionbudgets PodDisruptionBudget {"spec":{"minAvailable":0,"selector":` + kindSelector + `}}
networking.k8s.io/v1 ingresses Ingress {"spec":{"defaultBackend":{"service":{"name":"none","port":{"number":80}}}}}
networking.k8s.io/v1 ingressclasses IngressClass cluster {"spec":{"controller":"example.com/none"}}
rbac.authorization.k8s.io/v1 clusterroles ClusterRole cluster {}
rbac.authorization.k8s.io/v1 clusterrolebindings ClusterRoleBinding cluster {"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"noticed"}}
storage.k8s.io/v1 storageclasses StorageClass cluster {"provisioner":"example.com/none"}
storage.k8s.io/v1 csidrivers CSIDriver cluster {"spec":{}}
node.k8s.io/v1 runtimeclasses RuntimeClass cluster {"handler":"none"}
admissionregistration.k8s.io/v1 validatingwebhookconfigurations ValidatingWebhookConfiguration cluster {}
admissionregistration.k8s.io/v1 mutatingwebhookconfigurations MutatingWebhookConfiguration cluster {}
`
)

func (k kind) in(objects dynamic.Interface) dynamic.ResourceInterface {
	if namespace := k.object.GetNamespace(); namespace != "" {
		return objects.Resource(k.resource).Namespace(namespace)
	}
	return objects.Resource(k.resource)
}

// touch changes the object so that nobody minds.
func (k kind) touch(ctx context.Context, objects dynamic.Interface, value string) error {
	_, err := k.in(objects).Patch(ctx, noticeName, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/touched":%q}}}`, value), metav1.PatchOptions{})
	return err
}

// createKinds makes one object of each kind.
func createKinds(ctx context.Context, r *run, resources []kind) dynamic.Interface {
	ginkgo.GinkgoHelper()
	config := r.Cluster.AdminConfig()
	config.QPS = -1
	objects, err := dynamic.NewForConfig(config)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for _, k := range resources {
		_, err := k.in(objects).Create(ctx, &k.object, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			gomega.Expect(err).NotTo(gomega.HaveOccurred(), k.resource.String())
		}
	}
	return objects
}
