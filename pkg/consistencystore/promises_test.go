// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"maps"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/metadata/metadatainformer"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/resourcepoolstatusrequest"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
	"k8s.io/kubernetes/pkg/controller/volume/persistentvolume"
	"k8s.io/kubernetes/pkg/controlplane/controller/legacytokentracking"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/hostpath"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/fresh-kcm/fresh-kcm/pkg/inventory"
)

// promise shows that the deletions of a controller carry what the inventory promises: the transport sends none without.
type promise struct {
	// test is the one that shows it, in this repository.
	test string
	// In its place: objects that the controller deletes one of, once run is run.
	objects  []runtime.Object
	resource string
	run      func(ctx context.Context, t *testing.T, client *fake.Clientset, factory informers.SharedInformerFactory) func()
}

var expired = metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid", ResourceVersion: "7", CreationTimestamp: longAgo}

var orphan = metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid", ResourceVersion: "7",
	OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "gone"}}}

// longAgo is before any bubble begins.
var longAgo = metav1.NewTime(time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC))

// promises are those of all controllers whose deletions promise a precondition.
var promises = map[string]promise{
	names.TaintEvictionController:                    {test: "TestTaintedPodsAreEvictedOnTime"},
	names.DeviceTaintEvictionController:              {test: "TestDeviceTaintGoneUnseen"},
	names.ResourceClaimController:                    {test: "TestResourceClaims"},
	names.EndpointsController:                        {test: "TestEndpointsOfAServiceThatTheCacheLacks"},
	names.EndpointSliceMirroringController:           {test: "TestMirroredSlicesAreDeletedAsTheyWereRead"},
	names.PodGarbageCollectorController:              {test: "TestPodGC"},
	names.CertificateSigningRequestCleanerController: {test: "TestDeletionsNameWhatTheyRestOn"},
	names.TokenCleanerController:                     {test: "TestDeletionsNameWhatTheyRestOn"},
	names.PodCertificateRequestCleanerController: {
		resource: "podcertificaterequests", objects: []runtime.Object{&certificatesv1.PodCertificateRequest{ObjectMeta: expired}},
		run: func(ctx context.Context, _ *testing.T, client *fake.Clientset, factory informers.SharedInformerFactory) func() {
			c := cleaner.NewPCRCleanerController(client, factory.Certificates().V1().PodCertificateRequests(), clock.RealClock{}, time.Minute, time.Minute)
			return func() { c.Run(ctx, 1) }
		},
	},
	names.ResourcePoolStatusRequestController: {
		resource: "resourcepoolstatusrequests", objects: []runtime.Object{&resourcev1alpha3.ResourcePoolStatusRequest{ObjectMeta: expired}},
		run: func(ctx context.Context, t *testing.T, client *fake.Clientset, factory informers.SharedInformerFactory) func() {
			resources := factory.Resource().V1()
			c, err := resourcepoolstatusrequest.NewController(ctx, client, factory.Resource().V1alpha3().ResourcePoolStatusRequests(),
				resources.ResourceSlices(), resources.ResourceClaims(), resources.DeviceTaintRules())
			require.NoError(t, err)
			return func() { c.Run(ctx, 1) }
		},
	},
	names.TTLAfterFinishedController: {
		resource: "jobs", objects: []runtime.Object{&batchv1.Job{ObjectMeta: expired, Spec: batchv1.JobSpec{TTLSecondsAfterFinished: ptr.To[int32](1)},
			Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: longAgo}}}}},
		run: func(ctx context.Context, _ *testing.T, client *fake.Clientset, factory informers.SharedInformerFactory) func() {
			c := ttlafterfinished.New(ctx, factory.Batch().V1().Jobs(), client)
			return func() { c.Run(ctx, 1) }
		},
	},
	names.ServiceAccountTokenController: {
		resource: "secrets", objects: []runtime.Object{&corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid",
			ResourceVersion: "7", Annotations: map[string]string{corev1.ServiceAccountNameKey: "gone", corev1.ServiceAccountUIDKey: "gone"}}}},
		run: func(ctx context.Context, t *testing.T, client *fake.Clientset, factory informers.SharedInformerFactory) func() {
			c, err := serviceaccount.NewTokensController(klog.FromContext(ctx), factory.Core().V1().ServiceAccounts(), factory.Core().V1().Secrets(), client, serviceaccount.TokensControllerOptions{})
			require.NoError(t, err)
			return func() { c.Run(ctx, 1) }
		},
	},
	names.LegacyServiceAccountTokenCleanerController: {
		resource: "secrets", objects: []runtime.Object{
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: legacytokentracking.ConfigMapName}, Data: map[string]string{legacytokentracking.ConfigMapDataKey: "1990-01-01"}},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "account"}, Secrets: []corev1.ObjectReference{{Name: "a"}}},
			&corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid", ResourceVersion: "7", CreationTimestamp: longAgo,
				Annotations: map[string]string{corev1.ServiceAccountNameKey: "account"}, Labels: map[string]string{"kubernetes.io/legacy-token-invalid-since": "1995-01-01"}}},
		},
		run: func(ctx context.Context, t *testing.T, client *fake.Clientset, factory informers.SharedInformerFactory) func() {
			core := factory.Core().V1()
			c, err := serviceaccount.NewLegacySATokenCleaner(core.ServiceAccounts(), core.Secrets(), core.Pods(), client, clock.RealClock{},
				serviceaccount.LegacySATokenCleanerOptions{CleanUpPeriod: 24 * time.Hour, SyncInterval: 24 * time.Hour})
			require.NoError(t, err)
			return func() { c.Run(ctx) }
		},
	},
	names.PersistentVolumeBinderController: {
		resource: "persistentvolumes", objects: []runtime.Object{&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid", ResourceVersion: "7"},
			Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
				ClaimRef:               &corev1.ObjectReference{Namespace: "ns", Name: "gone", UID: "gone"},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/fresh-kcm-no-such-volume"}}},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
		}},
		run: func(ctx context.Context, t *testing.T, client *fake.Clientset, factory informers.SharedInformerFactory) func() {
			core := factory.Core().V1()
			c, err := persistentvolume.NewController(ctx, persistentvolume.ControllerParameters{
				KubeClient: client, SyncPeriod: time.Minute, VolumePlugins: hostpath.ProbeVolumePlugins(volume.VolumeConfig{}),
				VolumeInformer: core.PersistentVolumes(), ClaimInformer: core.PersistentVolumeClaims(), ClassInformer: factory.Storage().V1().StorageClasses(),
				PodInformer: core.Pods(), NodeInformer: core.Nodes(),
			})
			require.NoError(t, err)
			return func() { c.Run(ctx) }
		},
	},
	names.GarbageCollectorController: {resource: "configmaps", objects: []runtime.Object{&corev1.ConfigMap{ObjectMeta: orphan}}, run: runGarbageCollector},
}

// runGarbageCollector runs it with a ConfigMap whose owner is gone.
func runGarbageCollector(ctx context.Context, t *testing.T, client *fake.Clientset, factory informers.SharedInformerFactory) func() {
	types := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(types))
	objects := metadatafake.NewSimpleMetadataClient(types, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: orphan})
	objects.PrependReactor("delete", "*", func(action k8stesting.Action) (bool, runtime.Object, error) {
		_, err := client.Invokes(action, &corev1.ConfigMap{})
		return true, nil, err
	})
	started := make(chan struct{})
	close(started)
	gc, err := garbagecollector.NewGarbageCollector(ctx, client, objects, staticMapper{testrestmapper.TestOnlyStaticRESTMapper(scheme.Scheme)}, nil,
		informerfactory.NewInformerFactory(factory, metadatainformer.NewSharedInformerFactory(objects, 0)), started)
	require.NoError(t, err)
	return func() {
		go gc.Sync(ctx, configMapsOnly{}, time.Minute)
		gc.Run(ctx, 1, time.Minute)
	}
}

type staticMapper struct{ meta.RESTMapper }

func (staticMapper) Reset() {}

type configMapsOnly struct {
	discovery.ServerResourcesInterface
}

func (configMapsOnly) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: []string{"list", "watch", "delete"}},
	}}}, nil
}

// Every deletion of a controller carries what the inventory promises of it.
func TestEveryPromiseIsKept(t *testing.T) {
	var promising []string
	for _, c := range inventory.Controllers() {
		for _, rule := range c.Rules {
			if len(rule.Preconditions) == 0 {
				continue
			}
			promising = append(promising, c.Name)
			t.Run(c.Name, func(t *testing.T) {
				p := promises[c.Name]
				if p.run == nil {
					require.NotEmpty(t, p.test)
					require.NoError(t, exec.CommandContext(t.Context(), "grep", "-rq", "--include=*_test.go", "func "+p.test+"(", "../../pkg", "../../test/e2e").Run(), "there is no %s", p.test)
					return
				}
				synctest.Test(t, func(t *testing.T) { p.keeps(t, rule.Preconditions) })
			})
		}
	}
	require.ElementsMatch(t, promising, slices.Collect(maps.Keys(promises)))
}

func (p promise) keeps(t *testing.T, promised []inventory.Precondition) {
	ctx, cancel := context.WithCancel(t.Context())
	consistency.SetProvider(func(_ string, caches map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
		return passStore(ctx, &verdicts{}, caches)
	})
	client := fake.NewClientset(p.objects...)
	var mu sync.Mutex
	var asked []metav1.DeleteOptions
	client.PrependReactor("delete", p.resource, func(action k8stesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, action.(k8stesting.DeleteActionImpl).DeleteOptions)
		return false, nil, nil
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	run := p.run(ctx, t, client, factory)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	runUntilCleanup(t, cancel, factory, run)
	time.Sleep(20 * time.Minute)
	synctest.Wait()
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(t, asked)
	for _, options := range asked {
		require.NotNil(t, options.Preconditions)
		for _, one := range promised {
			switch one {
			case inventory.UID:
				require.EqualValues(t, "uid", *options.Preconditions.UID)
			case inventory.ResourceVersion:
				require.Equal(t, "7", *options.Preconditions.ResourceVersion)
			}
		}
	}
}
