// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"net/http"

	clientset "k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
)

// wrappedBuilder makes clients as the builder that it has, with something more around their transport.
type wrappedBuilder struct {
	clientbuilder.ControllerClientBuilder
	wrap func(next http.RoundTripper) http.RoundTripper
}

func (b wrappedBuilder) Config(name string) (*restclient.Config, error) {
	config, err := b.ControllerClientBuilder.Config(name)
	if err != nil {
		return nil, err
	}
	config = restclient.CopyConfig(config)
	config.Wrap(b.wrap)
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

// orDie ends the process as upstream's builders do.
func orDie[T any](value T, err error) T {
	if err != nil {
		klog.Fatal(err)
	}
	return value
}
