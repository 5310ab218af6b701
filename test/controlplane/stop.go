// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"k8s.io/klog/v2"
)

// Stop ends every component, clients before servers, and removes a temporary directory unless it is to
// be kept. It takes seconds at most whatever state the components are in, so the context serves for
// logging only. The error is about processes that could not be ended. A second call does nothing.
func (c *Cluster) Stop(ctx context.Context) error {
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return nil
	}
	c.stopped = true
	components := slices.Clone(c.components)
	c.mu.Unlock()

	if c.leases != nil {
		c.leases.end()
	}
	var errs []error
	for _, wave := range stopOrder(components) {
		var g sync.WaitGroup
		results := make([]error, len(wave))
		for i, comp := range wave {
			g.Go(func() { results[i] = comp.Stop() })
		}
		g.Wait()
		errs = append(errs, results...)
	}
	if c.peers != nil {
		c.peers.Close()
	}
	failed := false
	for _, comp := range components {
		errs = append(errs, comp.gone())
		failed = failed || comp.failed
		for _, port := range comp.ports {
			port.release()
		}
	}
	c.mu.Lock()
	keep := c.keep || failed || !c.temporary
	c.mu.Unlock()
	if !keep {
		errs = append(errs, os.RemoveAll(c.dir))
	} else {
		klog.FromContext(ctx).V(1).Info("Kept the control plane's files", "dir", c.dir)
	}
	return errors.Join(errs...)
}

// stopOrder puts components that depend on others before those.
func stopOrder(components []*Component) [][]*Component {
	waves := make([][]*Component, 3)
	for _, comp := range components {
		wave := 0
		switch {
		case strings.HasPrefix(comp.name, kubeAPIServer):
			wave = 1
		case strings.HasPrefix(comp.name, etcdBinary):
			wave = 2
		}
		waves[wave] = append(waves[wave], comp)
	}
	return waves
}

// gone returns an error if any process of the component's last process group is left.
func (c *Component) gone() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc == nil {
		return nil
	}
	if !c.proc.exited() {
		return fmt.Errorf("%s: pid %d is still running", c.name, c.proc.pid())
	}
	if err := processGroupGone(c.proc.pid()); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}
