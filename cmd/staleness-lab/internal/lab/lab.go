// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/control"
	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/display"
	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/logs"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane/gates"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/faultrig"
)

// Options describe a lab.
type Options struct {
	// Nodes is how many nodes there are, at least one.
	Nodes int
	// Dir keeps data and logs. Empty means a temporary directory, removed at the end unless the lab failed.
	Dir string
	// BinDir has the binaries.
	BinDir string
	// StateFile tells a second command of the lab.
	StateFile string
	// FeatureGates are set on the kube-controller-manager, over those of arm P.
	FeatureGates map[string]bool
}

// redraw is how often the display looks at nodes and DaemonSet, which change more often than one can read.
const redraw = 250 * time.Millisecond

// lab is one run.
type lab struct {
	options Options
	state   *state
	control *control.Server
	cluster *controlplane.Cluster
	proxy   *faultproxy.Proxy       // between the kube-controller-manager and the apiserver
	objects atomic.Pointer[objects] // nil until there is an apiserver to ask
	refresh chan struct{}           // wakes who reads pids
}

// Run runs a lab until the context ends, which is no error, or a component that it cannot live without
// dies. When it returns every process is gone.
func Run(ctx context.Context, options Options, screen display.Screen) (err error) {
	l := &lab{options: options, state: newState(), refresh: make(chan struct{}, 1)}
	if l.control, err = control.Reserve(options.StateFile); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.control.Release()) }()
	dir, temporary := options.Dir, false
	if dir == "" {
		temporary = true
		dir, err = os.MkdirTemp("", "fresh-kcm-lab-")
	} else {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return fmt.Errorf("making the lab's directory: %w", err)
	}
	l.state.update(func(s *Snapshot) {
		s.Dir, s.LogsDir, s.Temporary, s.NodesWanted, s.BinDir = dir, filepath.Join(dir, "logs"), temporary, options.Nodes, options.BinDir
	})
	ctx, closeLog, err := logs.ToFile(ctx, filepath.Join(dir, "logs", "staleness-lab.log"))
	if err != nil {
		return err
	}

	drawing, stopDrawing := context.WithCancel(context.WithoutCancel(ctx))
	var drawer sync.WaitGroup
	drawer.Go(func() { l.draw(drawing, screen) })
	err = l.run(ctx, dir)
	err = errors.Join(err, closeLog())
	if temporary && err == nil {
		err = os.RemoveAll(dir)
	}
	l.state.update(func(s *Snapshot) { s.Phase, s.Kubeconfig = Stopped, "" })
	stopDrawing()
	drawer.Wait()
	if err != nil && temporary {
		return fmt.Errorf("%w\nlogs are kept in %s", err, filepath.Join(dir, "logs"))
	}
	return err
}

// run starts everything, stays, and stops everything.
func (l *lab) run(ctx context.Context, dir string) error {
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var background sync.WaitGroup

	err := l.start(running, fail, dir, &background)
	if err == nil {
		<-running.Done()
	}
	// An interrupted start fails in some way or other; only what made us stop ourselves is an error.
	if ctx.Err() != nil {
		err = nil
	} else if cause := context.Cause(running); cause != nil {
		err = cause
	}
	l.state.update(func(s *Snapshot) { s.Phase = Stopping })
	fail(nil)
	// What is under way is taken back before the cluster goes.
	err = errors.Join(err, l.control.Close(context.WithoutCancel(ctx)))
	background.Wait()
	if l.cluster != nil {
		err = errors.Join(err, l.cluster.Stop(context.WithoutCancel(ctx)))
	}
	if l.proxy != nil {
		l.proxy.Close()
	}
	l.readPIDs(context.WithoutCancel(ctx))
	return err
}

// start returns when every node is Ready and the sample runs on it.
func (l *lab) start(ctx context.Context, fail context.CancelCauseFunc, dir string, background *sync.WaitGroup) error {
	l.waiting("starting etcd, kube-apiserver, kube-scheduler and kwok")
	cluster, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, BinDir: l.options.BinDir, Progress: l.progress})
	if err != nil {
		return err
	}
	l.cluster = cluster
	objects, err := newObjects(cluster)
	if err != nil {
		return err
	}
	l.objects.Store(objects)
	background.Go(func() { objects.run(ctx) })
	background.Go(func() { l.followPIDs(ctx) })
	background.Go(func() { l.supervise(ctx, fail, cluster.Etcd(), vital) })
	background.Go(func() { l.supervise(ctx, fail, cluster.APIServers()[0].Component, vital) })
	background.Go(func() { l.supervise(ctx, fail, cluster.Scheduler(), replaceable) })
	background.Go(func() { l.supervise(ctx, fail, cluster.Kwok(), replaceable) })
	l.state.update(func(s *Snapshot) { s.Kubeconfig = cluster.KubeconfigPath() })
	if l.proxy, err = faultrig.StartProxy(ctx, cluster); err != nil {
		return err
	}

	l.waiting("starting kube-controller-manager and the nodes")
	g, starting := errgroup.WithContext(ctx)
	g.Go(func() error {
		kcm, err := cluster.StartKCM(starting, controlplane.KCMOptions{
			Arm:            controlplane.ArmP,
			Name:           "kube-controller-manager",
			Server:         l.proxy.URL(),
			ProcessOptions: controlplane.ProcessOptions{FeatureGates: l.options.FeatureGates},
		})
		if err != nil {
			return err
		}
		background.Go(func() { l.supervise(ctx, fail, kcm.Component, replaceable) })
		return l.readGates(starting)
	})
	g.Go(func() error {
		_, err := cluster.Nodes().Create(starting, controlplane.NodeOptions{Count: l.options.Nodes})
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	l.waiting("waiting for the sample DaemonSet on every node")
	if err := objects.runSample(ctx, l.options.Nodes); err != nil {
		return err
	}
	if err := l.invite(ctx); err != nil {
		return err
	}
	background.Go(func() { l.followPage(ctx) })
	l.observe()
	l.state.update(func(s *Snapshot) { s.Phase, s.ReadyAfter, s.Waiting = Ready, time.Since(l.state.begin), "" })
	return nil
}

func (l *lab) waiting(what string) { l.state.update(func(s *Snapshot) { s.Waiting = what }) }

// progress is called with the cluster's locks held, so it leaves the rest to followPIDs.
func (l *lab) progress(component string, to controlplane.State) {
	l.state.update(func(s *Snapshot) {
		c := s.component(component)
		c.State = to
		if to != controlplane.StateRunning && to != controlplane.StatePaused {
			c.PID = 0
		}
	})
	select {
	case l.refresh <- struct{}{}:
	default:
	}
}

// followPIDs keeps pids and versions up to date.
func (l *lab) followPIDs(ctx context.Context) {
	for {
		l.readPIDs(ctx)
		select {
		case <-ctx.Done():
			return
		case <-l.refresh:
		}
	}
}

func (l *lab) readPIDs(ctx context.Context) {
	if l.cluster == nil {
		return
	}
	for _, status := range l.cluster.Components(ctx) {
		l.state.update(func(s *Snapshot) { s.component(status.Name).Status = status })
	}
}

// readGates asks the kube-controller-manager that runs now.
func (l *lab) readGates(ctx context.Context) error {
	var also []string
	for name := range l.options.FeatureGates {
		also = append(also, name)
	}
	running, err := gates.Running(ctx, l.cluster.KCMs()[0], also...)
	if err != nil {
		return err
	}
	l.state.update(func(s *Snapshot) { s.Gates = running })
	return nil
}

// draw shows the lab whenever it changed, and at least often enough for its clock.
func (l *lab) draw(ctx context.Context, screen display.Screen) {
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	for {
		s := l.state.snapshot()
		screen.Show(s)
		select {
		case <-ctx.Done():
			screen.Show(l.state.snapshot())
			return
		case <-l.state.changed:
		case <-ticker.C:
			l.observe()
		}
	}
}
