// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	clientset "k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/inventory"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

// Clients returns a builder whose clients record the writes of every reconcile in the store of the
// controller that makes it, count those that the inventory does not have, send no deletion without the precondition that it
// promises, unless the controller is exempt by its name in --controllers, and write nothing once lease has run out, unless it is nil.
func Clients(builder clientbuilder.ControllerClientBuilder, lease *Lease, exempt ...string) clientbuilder.ControllerClientBuilder {
	exempted := sets.New(exempt...)
	metrics.Register()
	for _, client := range inventory.Promising(exempted) {
		metrics.InitRefusedDeletions(client)
	}
	return wrappedBuilder{builder, func(next http.RoundTripper, at endpoint, client string) http.RoundTripper {
		next = conditional{next, at, client, exempted}
		if lease != nil {
			next = leaderOnly{next, at, *lease}
		}
		return recorder{livereads.AskOnce(next), at, client}
	}}
}

// wrappedBuilder makes clients as the builder that it has, with something more around their transport. The builder
// is not embedded, so that no way to make a client is left out.
type wrappedBuilder struct {
	inner clientbuilder.ControllerClientBuilder
	wrap  func(next http.RoundTripper, at endpoint, client string) http.RoundTripper
}

var _ clientbuilder.ControllerClientBuilder = wrappedBuilder{}

func (b wrappedBuilder) Config(name string) (*restclient.Config, error) {
	config, err := b.inner.Config(name)
	if err != nil {
		return nil, err
	}
	at, err := endpointOf(config)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", name, err)
	}
	config = restclient.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return b.wrap(next, at, name) })
	return config, nil
}

func (b wrappedBuilder) ConfigOrDie(name string) *restclient.Config {
	return orDie(b.Config(name))
}

func (b wrappedBuilder) Client(name string) (clientset.Interface, error) {
	config, err := b.Config(name)
	if err != nil {
		return nil, err
	}
	return clientset.NewForConfig(config)
}

func (b wrappedBuilder) ClientOrDie(name string) clientset.Interface {
	return orDie(b.Client(name))
}

// DiscoveryClient has the limits that upstream's builders give to discovery: many requests, and seldom.
func (b wrappedBuilder) DiscoveryClient(name string) (discovery.DiscoveryInterface, error) {
	config, err := b.Config(name)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 20, 200
	return clientset.NewForConfig(config)
}

func (b wrappedBuilder) DiscoveryClientOrDie(name string) discovery.DiscoveryInterface {
	return orDie(b.DiscoveryClient(name))
}

// orDie ends the process as upstream's builders do.
func orDie[T any](value T, err error) T {
	if err != nil {
		klog.Fatal(err)
	}
	return value
}
