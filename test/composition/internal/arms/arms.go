// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package arms runs upstream's real controllers, as stock Kubernetes builds them or wired as this project does.
// Gates and the provider of stores are those of the process, so one arm runs at a time.
package arms

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/endpoint"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/endpointslicemirroring"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/replication"
	"k8s.io/kubernetes/pkg/controller/resourceclaim"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/sharedinformers"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
	"github.com/fresh-kcm/fresh-kcm/pkg/wiring"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
)

// Arm is a build of kube-controller-manager.
type Arm string

// The arms.
const (
	// Stock is upstream with its own gates at their defaults, and without ours.
	Stock Arm = "stock"
	// Ours is with our gates on.
	Ours Arm = "ours"
)

// What kube-controller-manager's flags are by default.
const (
	qps          = 20
	resync       = 12 * time.Hour
	nodePass     = 5 * time.Second
	startupGrace = time.Minute
	// namespaceResync is how often the namespace controller looks at all namespaces.
	namespaceResync = 5 * time.Minute
	evictionRate    = 0.1
	// endpointsPerSlice is how many endpoints a slice has at most.
	endpointsPerSlice = 100
	secondaryRate     = 0.01
	claimWorkers      = 50
	largeCluster      = 50
	unhealthyZone     = 0.55
	// Burst is how many requests a client may send at once.
	Burst = 30
	// Workers is how many objects of a kind are reconciled at once.
	Workers = 5
	// Grace is for how long a node may be silent.
	Grace = 50 * time.Second
)

// No fault has a request take as long as longestRequest.
const longestRequest = 2 * time.Minute

func init() {
	// The handlers log, and sleep by a clock that the bubbles' times run away from.
	utilruntime.ErrorHandlers = nil
	// What is logged without a context would come from all runs at once.
	klog.SetLogger(logr.Discard())
}

// Manager is a running kube-controller-manager.
type Manager struct {
	// Wiring is ours; nil on the stock arm.
	Wiring *wiring.Wiring

	parts   []any
	cancel  context.CancelFunc
	running sync.WaitGroup
	stop    []func()
}

// controller is one to run.
type controller func(ctx context.Context)

// Flags are those of kube-controller-manager.
type Flags struct {
	// Monitor says that caches are watched, on our arm.
	Monitor bool
	// Namespaces says that the namespace controller runs, too.
	Namespaces bool
	// Guards says that podgc, quota and disruption run, too, podgc with Ended as its threshold of ended pods.
	Guards bool
	Ended  int
	// Deployments says that the controller of Deployments runs, too.
	Deployments bool
	// CronJobs says that the controller of CronJobs runs, too.
	CronJobs bool
	// Slices says that the controller of EndpointSlices runs, too.
	Slices bool
	// PerSlice, unless 0, is how many endpoints a slice has at most, in place of the default.
	PerSlice int
	// Endpoints says that the controllers of Endpoints, and of the slices that mirror them, run, too.
	Endpoints bool
	// Finalizers says that the controllers run, too, that keep a finalizer on what is used.
	Finalizers bool
	// Collector says that the garbage collector runs, too.
	Collector bool
	// Claims says that the controller of resource claims runs, too.
	Claims bool
	// DeviceTaints says that pods are evicted from devices with taints.
	DeviceTaints bool
	// Volumes says that the attach/detach controller runs, too.
	Volumes bool
	// Load, unless nil, is what the controller of autoscalers reads, which runs, too.
	Load metrics.MetricsClient
	// QPS, unless 0, is how many requests a second each client may send, in place of the default.
	QPS int
}

// Start starts the arm's controllers on the server.
func Start(ctx context.Context, arm Arm, server *model.Server, flags Flags) (*Manager, error) {
	ctx, cancel := context.WithCancel(ctx)
	m := &Manager{cancel: cancel}
	config := &rest.Config{Host: "http://model", Transport: server, QPS: qps, Burst: Burst}
	if flags.QPS > 0 {
		config.QPS, config.Burst = float32(flags.QPS), flags.QPS*Burst/qps
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	var builder clientbuilder.ControllerClientBuilder = clientbuilder.SimpleControllerClientBuilder{ClientConfig: config}
	informerClients := builder
	watches := transport.NewWatches()
	if arm == Ours {
		informerClients = watches.Clients(builder)
	}
	shared, err := informerClients.Client("shared-informers")
	if err != nil {
		return nil, fmt.Errorf("client of the informers: %w", err)
	}
	metadataConfig, err := informerClients.Config("metadata-informers")
	if err != nil {
		return nil, fmt.Errorf("configuration of the metadata informers: %w", err)
	}
	metadataClient, err := metadata.NewForConfig(metadataConfig)
	if err != nil {
		return nil, fmt.Errorf("client of the metadata informers: %w", err)
	}
	typed := informers.NewSharedInformerFactory(shared, resync)
	objects := metadatainformer.NewSharedInformerFactory(metadataClient, resync)
	observed := informerfactory.NewInformerFactory(typed, objects)
	startTyped := typed.Start
	ofController := func(string) informers.SharedInformerFactory { return typed }
	if arm == Ours {
		own, err := builder.Config("fresh-kcm")
		if err != nil {
			return nil, fmt.Errorf("own configuration: %w", err)
		}
		client, err := builder.Client("fresh-kcm")
		if err != nil {
			return nil, fmt.Errorf("own client: %w", err)
		}
		mapper := model.Mapper()
		if m.Wiring, err = wiring.New(ctx, own, mapper, watches, wiring.NewEvents(ctx, client)); err != nil {
			return nil, fmt.Errorf("wiring: %w", err)
		}
		consistency.SetProvider(m.Wiring.Store)
		defer consistency.SetProvider(nil)
		builder = transport.Clients(builder, nil)
		handlers := sharedinformers.NewHandlers()
		typed, observed = handlers.Factory(typed), handlers.ObserveFactory(observed)
		m.parts = append(m.parts, watches, handlers)
		if flags.Monitor {
			m.Wiring.Monitor(sharedinformers.Informers(ctx, typed, observed, mapper), handlers)
		}
		starting := m.Wiring.StartInformers(typed, mapper, func(string) bool { return true })
		startTyped, ofController = starting.Start, starting.ForController
	}
	run, controllers, err := build(ctx, builder, typed)
	if err != nil {
		return nil, err
	}
	m.parts = append(m.parts, controllers...)
	if flags.Namespaces {
		namespaces, err := namespaceController(ctx, builder, typed)
		if err != nil {
			return nil, err
		}
		run = append(run, func(ctx context.Context) { namespaces.Run(ctx, 2*Workers) })
		m.parts = append(m.parts, namespaces)
	}
	if flags.Deployments {
		client, err := builder.Client(model.DeploymentClient)
		if err != nil {
			return nil, fmt.Errorf("client of %s: %w", model.DeploymentClient, err)
		}
		deployments, err := deployment.NewDeploymentController(ctx, typed.Apps().V1().Deployments(), typed.Apps().V1().ReplicaSets(), typed.Core().V1().Pods(), client)
		if err != nil {
			return nil, fmt.Errorf("deployment controller: %w", err)
		}
		run = append(run, func(ctx context.Context) { deployments.Run(ctx, Workers) })
		m.parts = append(m.parts, deployments)
	}
	if flags.CronJobs {
		client, err := builder.Client(model.CronJobClient)
		if err != nil {
			return nil, fmt.Errorf("client of %s: %w", model.CronJobClient, err)
		}
		cronJobs, err := cronjob.NewControllerV2(ctx, typed.Batch().V1().Jobs(), typed.Batch().V1().CronJobs(), client)
		if err != nil {
			return nil, fmt.Errorf("CronJob controller: %w", err)
		}
		run = append(run, func(ctx context.Context) { cronJobs.Run(ctx, Workers) })
		m.parts = append(m.parts, cronJobs)
	}
	if flags.Slices {
		slices, err := sliceController(ctx, builder, ofController(names.EndpointSliceController), cmp.Or(flags.PerSlice, endpointsPerSlice))
		if err != nil {
			return nil, err
		}
		run = append(run, func(ctx context.Context) { slices.Run(ctx, Workers) })
		m.parts = append(m.parts, slices)
	}
	for _, several := range []struct {
		wanted bool
		build  func(ctx context.Context, builder clientbuilder.ControllerClientBuilder, ofController func(name string) informers.SharedInformerFactory) ([]runner, error)
	}{{flags.Endpoints, endpointControllers}, {flags.Finalizers, finalizerControllers}} {
		if !several.wanted {
			continue
		}
		controllers, err := several.build(ctx, builder, ofController)
		if err != nil {
			return nil, err
		}
		for _, c := range controllers {
			run = append(run, func(ctx context.Context) { c.Run(ctx, Workers) })
			m.parts = append(m.parts, c)
		}
	}
	if flags.Claims {
		claims, err := claimController(ctx, builder, ofController(names.ResourceClaimController))
		if err != nil {
			return nil, err
		}
		run = append(run, func(ctx context.Context) { claims.Run(ctx, claimWorkers) })
		m.parts = append(m.parts, claims)
	}
	if flags.DeviceTaints {
		taints, err := deviceTaints(ctx, builder, ofController(names.DeviceTaintEvictionController))
		if err != nil {
			return nil, err
		}
		run = append(run, taints)
	}
	if flags.Load != nil {
		scaling, err := autoscalers(ctx, builder, ofController(names.HorizontalPodAutoscalerController), flags.Load)
		if err != nil {
			return nil, err
		}
		run = append(run, func(ctx context.Context) { scaling.Run(ctx, Workers) })
		m.parts = append(m.parts, scaling)
	}
	if flags.Volumes {
		volumes, err := attachDetach(ctx, builder, ofController(names.PersistentVolumeAttachDetachController))
		if err != nil {
			return nil, err
		}
		run = append(run, volumes.Run)
		m.parts = append(m.parts, volumes)
		m.stop = append(m.stop, func() { time.Sleep(attachTimeout) })
	}
	informersStarted := make(chan struct{})
	if flags.Guards {
		guards, parts, err := buildGuards(ctx, builder, ofController, typed, observed, informersStarted, flags.Ended)
		if err != nil {
			return nil, err
		}
		run = append(run, guards...)
		m.parts = append(m.parts, parts...)
	}
	if flags.Collector {
		collect, gc, err := collector(ctx, builder, metadataClient, observed, informersStarted)
		if err != nil {
			return nil, err
		}
		run = append(run, collect...)
		m.parts = append(m.parts, gc)
	} else {
		// As the garbage collector follows it.
		widgets, err := observed.ForResource(model.Widgets.GroupVersionResource)
		if err != nil {
			return nil, fmt.Errorf("informer of the custom resource: %w", err)
		}
		run = append(run, widgets.Informer().GetController().RunWithContext)
	}
	startTyped(ctx.Done()) // It may wait a moment, and as in the product controllers do not run before.
	for _, c := range run {
		m.running.Go(func() { c(ctx) })
	}
	observed.Start(ctx.Done())
	close(informersStarted)
	m.parts = append(m.parts, m.Wiring, typed, objects, observed)
	m.stop = append(m.stop, typed.Shutdown, objects.Shutdown)
	return m, nil
}

// build makes the controllers.
func build(ctx context.Context, builder clientbuilder.ControllerClientBuilder, f informers.SharedInformerFactory) (run []controller, parts []any, err error) {
	clients := map[string]kubernetes.Interface{}
	for _, name := range []string{"replicaset-controller", "replication-controller", "daemon-set-controller", "statefulset-controller", "job-controller", "node-controller"} {
		c, err := builder.Client(name)
		if err != nil {
			return nil, nil, fmt.Errorf("client of %s: %w", name, err)
		}
		clients[name] = c
	}
	core, apps := f.Core().V1(), f.Apps().V1()
	rs := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), core.Pods(), clients["replicaset-controller"], replicaset.BurstReplicas)
	rc := replication.NewReplicationManager(ctx, core.Pods(), core.ReplicationControllers(), clients["replication-controller"], replication.BurstReplicas)
	ds, err := daemon.NewDaemonSetsController(ctx, apps.DaemonSets(), apps.ControllerRevisions(), core.Pods(), core.Nodes(), clients["daemon-set-controller"], flowcontrol.NewBackOff(time.Second, 15*time.Minute))
	if err != nil {
		return nil, nil, fmt.Errorf("DaemonSet controller: %w", err)
	}
	sts := statefulset.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(), apps.ControllerRevisions(), clients["statefulset-controller"])
	jobs, err := job.NewController(ctx, clients["job-controller"], core.Pods(), f.Batch().V1().Jobs(), nil, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("job controller: %w", err)
	}
	nodes, err := nodelifecycle.NewNodeLifecycleController(ctx, f.Coordination().V1().Leases(), core.Pods(), core.Nodes(), apps.DaemonSets(), clients["node-controller"],
		nodePass, startupGrace, Grace, evictionRate, secondaryRate, largeCluster, unhealthyZone)
	if err != nil {
		return nil, nil, fmt.Errorf("node lifecycle: %w", err)
	}
	taints, err := tainteviction.New(ctx, clients["node-controller"], core.Pods(), core.Nodes(), "taint-eviction-controller")
	if err != nil {
		return nil, nil, fmt.Errorf("taint eviction: %w", err)
	}
	return []controller{
		func(ctx context.Context) { rs.Run(ctx, Workers) },
		func(ctx context.Context) { rc.Run(ctx, Workers) },
		func(ctx context.Context) { ds.Run(ctx, 2) },
		func(ctx context.Context) { sts.Run(ctx, Workers) },
		func(ctx context.Context) { jobs.Run(ctx, Workers) },
		nodes.Run,
		taints.Run,
	}, []any{rs, rc, ds, sts, jobs, nodes, taints}, nil
}

// namespaceController makes the controller that empties namespaces.
func namespaceController(ctx context.Context, builder clientbuilder.ControllerClientBuilder, f informers.SharedInformerFactory) (*namespace.NamespaceController, error) {
	client, err := builder.Client("namespace-controller")
	if err != nil {
		return nil, fmt.Errorf("client of namespace-controller: %w", err)
	}
	config, err := builder.Config("namespace-controller")
	if err != nil {
		return nil, fmt.Errorf("configuration of namespace-controller: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("metadata client of namespace-controller: %w", err)
	}
	return namespace.NewNamespaceController(ctx, client, objects, model.Discover, f.Core().V1().Namespaces(), namespaceResync, corev1.FinalizerKubernetes), nil
}

// sliceController makes the controller of EndpointSlices.
func sliceController(ctx context.Context, builder clientbuilder.ControllerClientBuilder, f informers.SharedInformerFactory, perSlice int) (*endpointslice.Controller, error) {
	client, err := builder.Client(model.SliceClient)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", model.SliceClient, err)
	}
	core := f.Core().V1()
	return endpointslice.NewController(ctx, core.Pods(), core.Services(), core.Nodes(), f.Discovery().V1().EndpointSlices(), int32(perSlice), client, 0), nil
}

// runner is a controller.
type runner interface {
	Run(ctx context.Context, workers int)
}

// endpointControllers makes the controllers of Endpoints and of the slices that mirror them.
func endpointControllers(ctx context.Context, builder clientbuilder.ControllerClientBuilder, ofController func(name string) informers.SharedInformerFactory) ([]runner, error) {
	client, err := builder.Client("endpoint-controller")
	if err != nil {
		return nil, fmt.Errorf("client of Endpoints: %w", err)
	}
	mirror, err := builder.Client("endpointslicemirroring-controller")
	if err != nil {
		return nil, fmt.Errorf("client of mirrored slices: %w", err)
	}
	f := ofController(names.EndpointsController)
	m := ofController(names.EndpointSliceMirroringController)
	return []runner{
		endpoint.NewEndpointController(ctx, f.Core().V1().Pods(), f.Core().V1().Services(), f.Core().V1().Endpoints(), client, 0),
		endpointslicemirroring.NewController(ctx, m.Core().V1().Endpoints(), m.Discovery().V1().EndpointSlices(), m.Core().V1().Services(), endpointsPerSlice, mirror, 0),
	}, nil
}

// claimController makes the controller of resource claims.
func claimController(ctx context.Context, builder clientbuilder.ControllerClientBuilder, f informers.SharedInformerFactory) (*resourceclaim.Controller, error) {
	client, err := builder.Client(model.ClaimClient)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", model.ClaimClient, err)
	}
	claims, err := resourceclaim.NewController(klog.FromContext(ctx), client, f.Core().V1().Pods(), f.Scheduling().V1beta1().PodGroups(), f.Resource().V1().ResourceClaims(), f.Resource().V1().ResourceClaimTemplates())
	if err != nil {
		return nil, fmt.Errorf("controller of resource claims: %w", err)
	}
	return claims, nil
}

// Parts are the manager's controllers, factories of informers and, on our arm, wiring: all that keeps something.
func (m *Manager) Parts() []any { return m.parts }

// Waits are what our side says that it waits for.
func (m *Manager) Waits() []stalenessz.Wait {
	if m.Wiring == nil {
		return nil
	}
	var waits stalenessz.Longest
	m.Wiring.Waits(&waits)
	return waits.Rows()
}

// Stop ends everything and waits for it.
func (m *Manager) Stop() {
	m.cancel()
	m.running.Wait()
	for _, stop := range m.stop {
		stop()
	}
}

// End is Stop at the end of a run, where time goes on no more: it waits for the requests that nobody can cancel, as those for events.
func (m *Manager) End() {
	m.Stop()
	time.Sleep(longestRequest)
}
