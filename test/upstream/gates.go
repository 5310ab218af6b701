// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upstream lets upstream's own integration tests run with this project's gates. They start an
// apiserver in their process and build controllers by hand, without the command that wires them;
// hack/test-upstream-integration.sh has the servers' start helpers call Server instead.
package upstream

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/component-base/featuregate"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
	_ "k8s.io/kubernetes/pkg/features" // the gates that ours depend on

	"github.com/fresh-kcm/fresh-kcm/pkg/features"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
	"github.com/fresh-kcm/fresh-kcm/pkg/wiring"
)

// GatesEnv is the variable that says whether both gates are on: true or false.
const GatesEnv = "FRESH_KCM_GATES"

// WiredPrefix begins a line of standard error for every controller that got a store of ours.
const WiredPrefix = "fresh-kcm: wired "

var on = os.Getenv(GatesEnv) == "true"

func init() {
	gates := utilfeature.DefaultMutableFeatureGate
	if err := features.Register(gates); err != nil {
		panic(err)
	}
	// The default, and not the value, is set: some of the tests emulate versions that have no such gates.
	for _, gate := range []featuregate.Feature{features.MonitorInformerStaleness, features.StaleControllerConsistency} {
		if err := gates.OverrideDefault(gate, on); err != nil {
			panic(err)
		}
	}
}

// Server wires the controllers that are built after it, until the next call, to this project's stores, and
// has the clients made from config record the writes of reconciles. ctx ends with the server. With the gates
// off it does nothing.
func Server(ctx context.Context, config *rest.Config) {
	if !on {
		return
	}
	if err := wire(ctx, config); err != nil {
		// Without wiring the tests would pass and prove nothing.
		klog.Fatalf("The controllers cannot be wired: %v", err)
	}
}

func wire(ctx context.Context, config *rest.Config) error {
	own := rest.CopyConfig(config)
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	d, err := discovery.NewDiscoveryClientForConfig(own)
	if err != nil {
		return fmt.Errorf("discovery client: %w", err)
	}
	mapper, events := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d)), wiring.NewEvents(ctx, client)
	// Each controller has a term of its own: some tests stop one together with its informers, and start it with others.
	consistency.SetProvider(func(controller string, stores map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
		w, err := wiring.New(ctx, own, mapper, transport.NewWatches(), events)
		if err != nil {
			klog.Fatalf("The controller %s cannot be wired: %v", controller, err)
		}
		// To standard error, where hack/tools/suites reads which controllers a test has protected.
		fmt.Fprintf(os.Stderr, "%s%s\n", WiredPrefix, controller)
		return w.Store(controller, stores)
	})
	recording, err := transport.Clients(clientbuilder.SimpleControllerClientBuilder{ClientConfig: own}, nil).Config("upstream-integration")
	if err != nil {
		return fmt.Errorf("recording client: %w", err)
	}
	config.WrapTransport = recording.WrapTransport
	return nil
}
