// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/control"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
)

const (
	// look is how often the lab looks what Fresh KCM does.
	look = 500 * time.Millisecond
	// undoLimit bounds the requests that take a fault back.
	undoLimit = 10 * time.Second
	// healLimit is how long the lab waits to see that all is well again.
	healLimit = time.Minute
)

// Player carries out faults on a lab.
type Player struct {
	Cluster *controlplane.Cluster
	KCM     *controlplane.KCM
	// Proxy is between the kube-controller-manager and the apiserver.
	Proxy  *faultproxy.Proxy
	Client kubernetes.Interface
	// Sample selects the pods of the lab's DaemonSet in the namespace default.
	Sample string
}

// Run carries out a fault; it is a control.Run.
func (p *Player) Run(ctx context.Context, fault control.Fault, say func(string)) error {
	if fault.For <= 0 {
		return fmt.Errorf("--for %v: the duration must be positive", fault.For)
	}
	r := &report{begin: time.Now(), say: say}
	switch fault.Kind {
	case control.Hold:
		return p.hold(ctx, fault.Name, fault.For, r)
	case control.KillNode:
		return p.killNode(ctx, fault.Name, fault.For, r)
	case control.RefusePods:
		return p.refusePods(ctx, fault.For, r)
	}
	return fmt.Errorf("there is no fault %q", fault.Kind)
}

// report says what happens, with the time since the fault began.
type report struct {
	begin time.Time
	say   func(string)
}

func (r *report) line(format string, args ...any) {
	r.say(fmt.Sprintf("%6.1fs  %s", time.Since(r.begin).Seconds(), fmt.Sprintf(format, args...)))
}

// text says something that has no time.
func (r *report) text(format string, args ...any) {
	r.say(fmt.Sprintf("         "+format, args...))
}

var errStopped = errors.New("stopped")

// watch looks again and again until done says so or the time is over, which ok reports. The context's end is an error.
func watch(ctx context.Context, limit time.Duration, done func(context.Context) bool) (ok bool, err error) {
	end := time.NewTimer(limit)
	defer end.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if done(ctx) {
			return true, nil
		}
		select {
		case <-ctx.Done():
			return false, errStopped
		case <-end.C:
			return false, nil
		case <-tick.C:
		}
	}
}
