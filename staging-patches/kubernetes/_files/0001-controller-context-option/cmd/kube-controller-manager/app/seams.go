// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/controller-manager/pkg/informerfactory"
)

var (
	secureHandlers      = map[string]http.Handler{}
	wrapInformerFactory func(informerfactory.InformerFactory) informerfactory.InformerFactory
	wrapInformerClients func(clientbuilder.ControllerClientBuilder) clientbuilder.ControllerClientBuilder
	wrapClients         func(context.Context, clientbuilder.ControllerClientBuilder) clientbuilder.ControllerClientBuilder
	observeElection     func(leaderelection.LeaderElectionConfig) leaderelection.LeaderElectionConfig
)

// ObserveElection has each leader election run with the configuration that observe makes of its own. It must be called before Run.
func ObserveElection(observe func(leaderelection.LeaderElectionConfig) leaderelection.LeaderElectionConfig) {
	observeElection = observe
}

func observed(config leaderelection.LeaderElectionConfig) leaderelection.LeaderElectionConfig {
	if observeElection == nil {
		return config
	}
	return observeElection(config)
}

// HandleSecure has the secure port serve path with handler, behind the same authentication and authorization as /metrics. It must be called before Run.
func HandleSecure(path string, handler http.Handler) { secureHandlers[path] = handler }

// WrapInformerFactory has every ControllerContext, and what is built for it, use the factory that wrap
// makes of the one for typed objects and metadata. It must be called before Run.
func WrapInformerFactory(wrap func(informerfactory.InformerFactory) informerfactory.InformerFactory) {
	wrapInformerFactory = wrap
}

// WrapInformerClients has every ControllerContext make the clients of its informers, and none else but that of
// discovery, with the builder that wrap makes of the one with the process's identity. It must be called before Run.
func WrapInformerClients(wrap func(clientbuilder.ControllerClientBuilder) clientbuilder.ControllerClientBuilder) {
	wrapInformerClients = wrap
}

// WrapClients has a term of leadership make all of its clients with builders that wrap makes: those of the controllers, the tokens
// controller's, the informers', those that Options are given, and the one that makes the controllers' service accounts and tokens. ctx is the
// term's. Only the clients of leader election and of the secure port's authentication are not made so. It must be called before Run.
func WrapClients(wrap func(ctx context.Context, builder clientbuilder.ControllerClientBuilder) clientbuilder.ControllerClientBuilder) {
	wrapClients = wrap
}

func installSecureHandlers(m *mux.PathRecorderMux) {
	for path, handler := range secureHandlers {
		m.Handle(path, handler)
	}
}

func wrapped(factory informerfactory.InformerFactory) informerfactory.InformerFactory {
	if wrapInformerFactory == nil {
		return factory
	}
	return wrapInformerFactory(factory)
}

func informerClients(root clientbuilder.ControllerClientBuilder) clientbuilder.ControllerClientBuilder {
	if wrapInformerClients == nil {
		return root
	}
	return wrapInformerClients(root)
}

func rootClients(ctx context.Context, root clientbuilder.ControllerClientBuilder) clientbuilder.ControllerClientBuilder {
	if wrapClients == nil {
		return root
	}
	return wrapClients(ctx, root)
}

// termClients returns the builders with which a term makes its clients.
func termClients(ctx context.Context, clientBuilder, root clientbuilder.ControllerClientBuilder) (ofTerm, rootOfTerm clientbuilder.ControllerClientBuilder, err error) {
	if wrapClients == nil {
		return clientBuilder, root, nil
	}
	root = wrapClients(ctx, root)
	dynamic, ok := clientBuilder.(*clientbuilder.DynamicControllerClientBuilder)
	if !ok {
		return root, root, nil
	}
	accounts, err := root.Client(kubeControllerManager)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to create the client of the controllers' service accounts: %w", err)
	}
	return wrapClients(ctx, clientbuilder.NewDynamicClientBuilder(dynamic.ClientConfig, accounts.CoreV1(), dynamic.Namespace)), root, nil
}
