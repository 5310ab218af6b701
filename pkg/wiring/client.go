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

// recordingBuilder makes the controllers' clients as the builder it wraps does, with the recorder in
// their transport, and before it the refusal to write without the leader lease.
type recordingBuilder struct {
	clientbuilder.ControllerClientBuilder
	lease *Lease // nil: without leader election
}

func (b recordingBuilder) Config(name string) (*restclient.Config, error) {
	config, err := b.ControllerClientBuilder.Config(name)
	if err != nil {
		return nil, err
	}
	config = restclient.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		if b.lease != nil {
			next = leaderOnly{next, *b.lease}
		}
		return recorder{next}
	})
	return config, nil
}

func (b recordingBuilder) ConfigOrDie(name string) *restclient.Config {
	return orDie(b.Config(name))
}

func (b recordingBuilder) Client(name string) (clientset.Interface, error) {
	config, err := b.Config(name)
	if err != nil {
		return nil, err
	}
	return clientset.NewForConfig(config)
}

func (b recordingBuilder) ClientOrDie(name string) clientset.Interface {
	return orDie(b.Client(name))
}

// orDie ends the process as upstream's builders do.
func orDie[T any](value T, err error) T {
	if err != nil {
		klog.Fatal(err)
	}
	return value
}
