// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"strconv"
)

func (c *Cluster) newScheduler() (*Component, error) {
	kubeconfig, err := c.clientKubeconfig(kubeScheduler, schedulerUser)
	if err != nil {
		return nil, err
	}
	comp, err := c.newComponent(kubeScheduler, kubeScheduler, 1, c.options.Scheduler)
	if err != nil {
		return nil, err
	}
	comp.args = func() ([]string, error) {
		return append(c.secureServing(comp, kubeconfig), "--kubeconfig="+kubeconfig, "--leader-elect=false"), nil
	}
	comp.ready = func(ctx context.Context) error {
		return c.probe(ctx, "https://"+comp.ports[0].addr()+"/healthz")
	}
	return comp, nil
}

// secureServing returns the flags of a component's own secure port, whose clients are authenticated
// and authorized by the apiserver of the kubeconfig.
func (c *Cluster) secureServing(comp *Component, kubeconfig string) []string {
	return []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(comp.ports[0].port),
		"--tls-cert-file=" + c.pki.path("serving.crt"),
		"--tls-private-key-file=" + c.pki.path("serving.key"),
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
	}
}
