// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

const (
	readyTimeout  = 4 * time.Minute
	stopGrace     = 8 * time.Second
	pollInterval  = 50 * time.Millisecond
	startAttempts = 5
	tailLines     = 12
)

var errExited = errors.New("it exited")

// start is the first start: nobody knows the ports yet, so a port lost to a stranger is replaced.
func (c *Component) start(ctx context.Context) error {
	c.op.Lock()
	defer c.op.Unlock()
	for attempt := 1; ; attempt++ {
		err := c.run(ctx)
		if err == nil || attempt == startAttempts || !errors.Is(err, ErrAddressInUse) {
			return err
		}
		c.mu.Lock()
		c.failed = false
		c.mu.Unlock()
		klog.FromContext(ctx).Info("Port was taken, trying others", "component", c.name, "attempt", attempt)
		for i := range c.ports {
			lease, err := leasePort()
			if err != nil {
				return c.errorf("start", err)
			}
			c.ports[i].release()
			*c.ports[i] = *lease
		}
	}
}

// run starts the process and waits until it is ready. A process that does not get ready is ended.
func (c *Component) run(ctx context.Context) error {
	args, err := c.args()
	if err != nil {
		return c.errorf("start", err)
	}
	binary := c.binaryPath()
	if err := checkBinary(binary); err != nil {
		return c.errorf("start", err)
	}
	argv := append([]string{binary}, args...)
	if gates := c.gatesFlag(); gates != "" {
		argv = append(argv, gates)
	}
	argv = append(argv, c.options.Args...)

	log, err := os.OpenFile(c.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return c.errorf("start", err)
	}
	defer log.Close()
	fmt.Fprintf(log, "==== %s %s\n", time.Now().Format(time.RFC3339Nano), strings.Join(argv, " "))
	info, err := log.Stat()
	if err != nil {
		return c.errorf("start", err)
	}
	p, err := startProcess(argv, append(slices.Clone(c.env), c.options.Env...), log)
	if err != nil {
		return c.errorf("start", err)
	}
	c.mu.Lock()
	c.proc, c.logOffset, c.ending = p, info.Size(), false
	c.mu.Unlock()
	c.setState(StateStarting)
	go c.watch(p)

	if err := c.waitReady(ctx, p); err != nil {
		c.mu.Lock()
		c.failed = true
		c.mu.Unlock()
		failure := c.errorf("become ready", err)
		return errors.Join(failure, c.endLocked("stop", (*process).kill))
	}
	c.setState(StateRunning)
	klog.FromContext(ctx).V(2).Info("Component is ready", "component", c.name, "pid", p.pid())
	return nil
}

// watch turns an exit that nobody asked for into StateFailed.
func (c *Component) watch(p *process) {
	<-p.done
	c.mu.Lock()
	failed := c.proc == p && !c.ending
	if failed {
		c.failed = true
	}
	c.mu.Unlock()
	if failed {
		c.setState(StateFailed)
	}
}

func (c *Component) waitReady(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %v", readyTimeout))
	defer cancel()
	err := c.poll(ctx, p, c.ready)
	if err != nil && p.exited() {
		for _, line := range logTail(c.logPath, c.logOffset, 200) {
			if strings.Contains(line, "address already in use") {
				return fmt.Errorf("a port of %v: %w", c.addrs(), ErrAddressInUse)
			}
		}
	}
	return err
}

// poll probes until the probe succeeds, the process exits or the context ends. The error tells of the
// last probe too.
func (c *Component) poll(ctx context.Context, p *process, probe func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // lest a probe wait for the answer of a stranger on the port
		select {
		case <-p.done:
			cancel(errExited)
		case <-ctx.Done():
		}
	}()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := probe(attempt)
		cancel()
		if err == nil && !p.exited() {
			return nil
		}
		if err != nil && (last == nil || ctx.Err() == nil) {
			last = err
		}
		select {
		case <-p.done:
			return errExited
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errExited) {
				return errExited
			}
			return fmt.Errorf("%w; last probe: %w", context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

func (c *Component) gatesFlag() string {
	gates := maps.Clone(c.fixedGates)
	if gates == nil {
		gates = map[string]bool{}
	}
	maps.Copy(gates, c.options.FeatureGates)
	if len(gates) == 0 {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		parts = append(parts, fmt.Sprintf("%s=%t", name, gates[name]))
	}
	return "--feature-gates=" + strings.Join(parts, ",")
}

func (c *Component) addrs() []string {
	var out []string
	for _, p := range c.ports {
		out = append(out, p.addr())
	}
	return out
}
