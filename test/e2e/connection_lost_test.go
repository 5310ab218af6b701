// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	holeNodes = 50
	// holeLasts is longer than client-go's pings (30 s and 15 s) need to give a connection up.
	holeLasts = 60 * time.Second
	// reconnectBound is for a client whose new connections hang, too, to be back.
	reconnectBound = time.Minute
)

// patientElection keeps a leader through the hole: one that exits does nothing wrong afterwards.
var patientElection = []string{
	"--leader-elect-lease-duration=150s", "--leader-elect-renew-deadline=140s", "--leader-elect-retry-period=2s",
}

// No byte passes between the KCM and the apiserver for longer than the grace period, and then they pass again.
// By its caches every node has been silent all that time. What U0 has tried to write meanwhile goes out.
var _ = describe(scenario{
	number: 13, title: "connection to the apiserver black-holed past the grace period", label: long,
	incidents: []string{"121793"},
	hurts:     rig.U0, rules: []string{oracle.RuleLiveMarked},
	options: shortTiming.rig(controlplane.NodeOptions{Count: holeNodes}, patientElection...), idle: true,
	timeout: 6 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.nodesKnown(ctx)
		nodes := r.Cluster.Nodes().Names()
		hole := r.Proxy.BlackHole()
		began := hole.Stats().Since
		set := create(ctx, r, workload.DaemonSet("hole"))
		r.passes(ctx, "the fault to last", began, holeLasts)
		// Nothing was created by a controller that cannot be reached.
		s := hole.Stats()
		made := oracle.DigestOf(r.Truth, set).PodsCreated
		r.figure("V connections frozen, pods made meanwhile", "%d, %d", s.Streams, made)
		if s.Streams == 0 || made > 0 {
			r.unproven = append(r.unproven, fmt.Sprintf("%d connections were frozen, %d pods made meanwhile", s.Streams, made))
		}
		hole.Clear()
		cleared := time.Now()
		r.lived(shortTiming, began, cleared, nodes...)
		r.figure("L after", "%v", rounded(r.converges(ctx, "hole", reconnectBound, r.daemonSetDone(set, holeNodes))))
		r.digest("hole", set, oracle.Digest{PodsCreated: holeNodes, RevisionsCreated: 1})
		r.passes(ctx, "the passes after it", cleared, 3*passPeriod)
		r.told(ctx, truth.Leases)
		r.budgeted("black hole", began, time.Now())
		r.converges(ctx, "all nodes Ready", stepLimit, r.allReady(nodes...))
	},
})
