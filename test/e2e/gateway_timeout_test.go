// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	loopNodes = 50
	// loopFor is time for a reflector's backoff to have grown (0.8 s, doubled up to 30 s).
	loopFor = 30 * time.Second
	// backOnce bounds how long an informer rests before it asks again.
	backOnce = 30 * time.Second
)

// The apiserver says of every list and watch that it has yet to see the version asked for, again and again,
// also of those that ask for the newest.
var _ = describe(leasesRefused(20, "504 \"too large resource version\" on watches and lists of leases past the grace period", faultproxy.TooLargeRV{}))

// The same of pods; a DaemonSet is created meanwhile. Stock is not hurt: the list that at last succeeds brings all pods at once.
var _ = describe(scenario{
	number: 20, title: "504 \"too large resource version\" on watches and lists of pods, DaemonSet create", label: long,
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: loopNodes}}},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		refused := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.TooLargeRV{})
		r.inject(faultproxy.Target{Resource: truth.Pods, Running: true}, faultproxy.Gone{}).Clear()
		began := refused.Stats().Since
		set := create(ctx, r, workload.DaemonSet("looped"))
		r.eventually(ctx, "a pod for every node", func() (bool, error) {
			return oracle.DigestOf(r.Truth, set).PodsCreated >= loopNodes, nil
		})
		r.passes(ctx, "the fault to last", began, loopFor)
		r.proves(refused, 3, loopFor)
		r.bounded("refused requests", refused.Stats().Requests, time.Since(began))
		refused.Clear()
		r.figure("L after", "%v", rounded(r.converges(ctx, "looped", backOnce+stepLimit, r.daemonSetDone(set, loopNodes))))
		r.digest("looped", set, oracle.Digest{PodsCreated: loopNodes, RevisionsCreated: 1})
	},
})
