// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	// calm is how long nothing may be found amiss in the ordinary run.
	calm = 75 * time.Second
	// calmVariable is for how long in the long one, instead of the hour that B8 asks for.
	calmVariable = "CALM"
	// lookEvery is how often the page is looked at.
	lookEvery = 500 * time.Millisecond
	// quietBound is what pkg/stalenessmonitor promises of the age of a cache that protected controllers read, if it
	// is answered at once. Of the others it is how much longer than it says it may take to ask again.
	quietBound = stalenessmonitor.Bound
	// savedAgain is how much later a cache that no protected controller reads may be asked about while the requests
	// are saved again that the start of the process, or many stalled watches, have taken.
	savedAgain = 2 * time.Minute
	// probesPerSecond is what all caches together may cost, probeBytes an answer on average.
	probesPerSecond = 2
	probeBytes      = 8192

	stalenessPeriod = stalenessmonitor.Period
)

func longCalm() time.Duration {
	if d, err := time.ParseDuration(os.Getenv(calmVariable)); err == nil {
		return d
	}
	return time.Hour
}

// No bookmark comes, of a busy resource and of quiet ones, for longer than bookmarks are apart. Nothing is
// missing, so nobody is hurt, and the monitor must not say that anything is.
//
//conformance:api-concepts Watch bookmarks: no client may count on one
var _ = describe(scenario{
	number: 14, title: "bookmarks suppressed while events flow", label: ordinary, gate: gates.MonitorInformerStaleness, mutants: []without{{"quiet-proof", ruleUnmeasured}},
	options: rig.Options{Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: 20}}}, idle: true,
	timeout: 5 * time.Minute,
	run: func(ctx context.Context, r *run) {
		if r.Arm == rig.P {
			r.measured(ctx)
		}
		var faults []*faultproxy.Fault
		for _, resource := range []schema.GroupResource{truth.Leases, truth.Pods, truth.DaemonSets, namespaces} {
			faults = append(faults, r.inject(informersOf(resource), faultproxy.SuppressBookmarks{}))
		}
		stop := churn(ctx, r)
		r.calm(ctx, calm)
		stop()
		frames := 0
		for _, fault := range faults {
			frames += fault.Stats().Dropped.Frames
		}
		r.figure("V bookmarks dropped", "%d", frames)
		if frames < len(faults) {
			r.unproven = append(r.unproven, "too few bookmarks were dropped")
		}
		set := create(ctx, r, workload.DaemonSet("without-bookmarks"))
		r.figure("L after", "%.1fs", r.converges(ctx, "without bookmarks", stepLimit, r.daemonSetDone(set, 20)).Seconds())
	},
})
