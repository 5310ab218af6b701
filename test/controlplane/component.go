// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/klog/v2"
)

// State is what a component is doing.
type State string

const (
	// StateStarting means that it runs but has not answered its health endpoint yet.
	StateStarting State = "starting"
	// StateRunning means that it became ready.
	StateRunning State = "running"
	// StatePaused means that it is stopped by SIGSTOP: it holds its connections open and is silent.
	StatePaused State = "paused"
	// StateStopped means that it was stopped or killed on demand, or was never started.
	StateStopped State = "stopped"
	// StateFailed means that it exited by itself.
	StateFailed State = "failed"
)

// Component is one process of a cluster, over all its restarts.
type Component struct {
	name    string
	logPath string
	env     []string
	// args makes this package's own arguments; it is called before every start, when the ports are known.
	args func() ([]string, error)
	// ready is one probe. A nil error means that the component serves.
	ready func(ctx context.Context) error
	// fixedGates are the arm's, under those of ProcessOptions.
	fixedGates map[string]bool
	binary     string
	progress   func(string, State)

	op      sync.Mutex // held for the length of an operation
	options ProcessOptions
	ports   []*portLease

	mu        sync.Mutex // guards what follows
	proc      *process
	logOffset int64
	state     State
	ending    bool // the present process is to exit
	failed    bool // has ever died by itself or not become ready
}

// Status is a component at one moment, for display.
type Status struct {
	Name, LogPath string
	State         State
	// PID is 0 when there is no process.
	PID int
	// Version is what the binary says of itself, empty if it does not answer.
	Version string
}

// Name returns the component's name, unique in its cluster.
func (c *Component) Name() string { return c.name }

// LogPath returns the file with its stdout and stderr.
func (c *Component) LogPath() string { return c.logPath }

// PID returns the process id, 0 when it is not running.
func (c *Component) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc == nil || c.proc.exited() {
		return 0
	}
	return c.proc.pid()
}

// State returns what the component is doing.
func (c *Component) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Version returns the version that the component's binary reports.
func (c *Component) Version(ctx context.Context) (string, error) {
	return binaryVersion(ctx, c.binaryPath())
}

// Done returns a channel that is closed when the present process has exited. It is closed already when
// there is none.
func (c *Component) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	return c.proc.done
}

// Wait waits for the present process to exit and returns its exit status as an *exec.ExitError, nil
// for status 0, or the context's error.
func (c *Component) Wait(ctx context.Context) error {
	c.mu.Lock()
	p := c.proc
	c.mu.Unlock()
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
		return p.exit
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to exit: %w", c.name, ctx.Err())
	}
}

// Pause stops the process with SIGSTOP: it keeps its connections and says nothing. Linux only.
func (c *Component) Pause() error {
	return c.signalled("pause", StatePaused, pauseProcess)
}

// Resume lets a paused process go on. It does not wait for readiness.
func (c *Component) Resume() error {
	return c.signalled("resume", StateRunning, resumeProcess)
}

func (c *Component) signalled(op string, to State, send func(*process) error) error {
	c.op.Lock()
	defer c.op.Unlock()
	c.mu.Lock()
	p := c.proc
	c.mu.Unlock()
	if p == nil || p.exited() {
		return c.errorf(op, errors.New("it is not running"))
	}
	if err := send(p); err != nil {
		return c.errorf(op, err)
	}
	c.setState(to)
	return nil
}

// Kill ends the process with SIGKILL and waits until it is gone. Without a process it does nothing.
func (c *Component) Kill() error {
	return c.end("kill", (*process).kill)
}

// Stop ends the process with SIGTERM, then, after a grace period of some seconds, SIGKILL, and waits
// until it is gone. Without a process it does nothing.
func (c *Component) Stop() error {
	return c.end("stop", func(p *process) error { return p.terminate(stopGrace) })
}

func (c *Component) end(op string, how func(*process) error) error {
	c.op.Lock()
	defer c.op.Unlock()
	return c.endLocked(op, how)
}

func (c *Component) endLocked(op string, how func(*process) error) error {
	c.mu.Lock()
	p := c.proc
	c.ending = true // so that the exit is not taken for a failure
	c.mu.Unlock()
	if p == nil {
		return nil
	}
	if err := how(p); err != nil {
		return c.errorf(op, err)
	}
	c.setState(StateStopped)
	return nil
}

// Restart stops the process if there is one and starts it again on the same ports, after the changes
// that the caller makes to its options. It returns when the component is ready.
func (c *Component) Restart(ctx context.Context, change ...func(*ProcessOptions)) error {
	c.op.Lock()
	defer c.op.Unlock()
	if err := c.endLocked("stop", func(p *process) error { return p.terminate(stopGrace) }); err != nil {
		return err
	}
	options := c.options.clone()
	for _, f := range change {
		f(&options)
	}
	c.setOptions(options)
	return c.run(ctx)
}

func (c *Component) errorf(op string, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := &ComponentError{Component: c.name, Op: op, LogPath: c.logPath, Err: err}
	if c.proc != nil && op != "start" {
		e.PID, e.Exit = c.proc.pid(), c.proc.exitStatus()
		e.LogTail = logTail(c.logPath, c.logOffset, tailLines)
	}
	return e
}

func (c *Component) setState(s State) {
	c.mu.Lock()
	// A process may die while it is being declared ready; its failure has the last word.
	if c.proc != nil && c.proc.exited() && (s == StateRunning || s == StateStarting) {
		s = StateFailed
	}
	changed := c.state != s
	c.state = s
	c.mu.Unlock()
	if c.progress != nil && changed {
		c.progress(c.name, s)
	}
}

func (c *Component) setOptions(o ProcessOptions) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.options = o
}

func (c *Component) binaryPath() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.options.Binary != "" {
		return c.options.Binary
	}
	return c.binary
}

func (c *Component) status(ctx context.Context) Status {
	version, err := c.Version(ctx)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("No version", "component", c.name, "err", err)
	}
	return Status{Name: c.name, LogPath: c.logPath, State: c.State(), PID: c.PID(), Version: version}
}

func (o ProcessOptions) clone() ProcessOptions {
	o.FeatureGates = maps.Clone(o.FeatureGates)
	o.Args = slices.Clone(o.Args)
	o.Env = slices.Clone(o.Env)
	return o
}

func logFile(dir, name string) string { return filepath.Join(dir, "logs", name+".log") }
