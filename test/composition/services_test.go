// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// serviceSeeds are those that run unless SERVICE_SEEDS says how many.
const serviceSeeds = 5

// A pod on a node that comes while nodes are held is left out of its Service on stock, for longer than they are held.
func TestServiceOnANodeThatIsNotSeen(t *testing.T) {
	s := schedule.Schedule{Nodes: 3, LateNodes: 2, Monitor: true, Settle: 5 * time.Minute, Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "replicas", Replicas: 1}},
		Services: []schedule.Service{{Name: "service", Over: "replicas"}}, Steps: []schedule.Step{
			{At: 55 * time.Second, Action: schedule.Hold, Target: "nodes", For: 40 * time.Second},
			{At: time.Minute, Action: schedule.NodeComes, N: 1},
			{At: time.Minute, Action: schedule.NodeComes, N: 2},
			{At: 62 * time.Second, Action: schedule.Scale, Target: "replicas", N: 6},
		}}
	stock, ours := both(t, s)
	owner := validate.ServiceOwner("service")
	require.Greater(t, longest(stock.Missing[owner]), 20*time.Second)
	require.Less(t, longest(ours.Missing[owner]), 3*time.Second)
}

func longest(spans []validate.Span) (most time.Duration) {
	for _, s := range spans {
		most = max(most, s.For)
	}
	return most
}

// Random histories of Services: ours lacks no endpoint for longer than stock, and leaves out none that the server has.
func TestServiceSeeds(t *testing.T) {
	eachSeed(t, number(t, "SERVICE_SEEDS", serviceSeeds), schedule.DrawServices)
}

// slowNodes is a history in which nodes are held, and read in so long, when one comes and pods run there.
func slowNodes(length, delay time.Duration) schedule.Schedule {
	return schedule.Schedule{Nodes: 3, LateNodes: 1, Monitor: true, Settle: 5 * time.Minute, Owners: []schedule.Owner{{Kind: "ReplicaSet", Name: "replicas", Replicas: 1}},
		Services: []schedule.Service{{Name: "service", Over: "replicas"}}, Steps: []schedule.Step{
			{At: 55 * time.Second, Action: schedule.Hold, Target: "nodes", For: length},
			{At: 55 * time.Second, Action: schedule.SlowReads, Target: "nodes", Delay: delay, For: length},
			{At: time.Minute, Action: schedule.NodeComes, N: 2},
			{At: 62 * time.Second, Action: schedule.Scale, Target: "replicas", N: 6},
		}}
}

// Where a node is read too slowly for a Service to wait for it, its pods are endpoints when the Service is tried again.
func TestServiceOnANodeThatIsReadSlowly(t *testing.T) {
	const length = 100 * time.Second
	// By the time at which it ends the read is too old to be shared.
	stock, ours := both(t, slowNodes(length, livereads.Age+time.Second))
	owner := validate.ServiceOwner("service")
	require.Greater(t, longest(stock.Missing[owner]), length-10*time.Second)
	require.Less(t, longest(ours.Missing[owner]), 40*time.Second)
}

// A pod whose node can neither be seen nor read is an endpoint as soon as the node is seen. Stock tries again when its backoff is over.
func TestServiceIsLookedAtAgainWhenTheNodeIsSeen(t *testing.T) {
	const length = 100 * time.Second
	stock, ours := both(t, slowNodes(length, 2*livereads.Timeout+5*time.Second))
	owner := validate.ServiceOwner("service")
	const seen = 55*time.Second + length
	require.Greater(t, ends(stock.Missing[owner]), seen+10*time.Second)
	require.Less(t, ends(ours.Missing[owner]), seen+3*time.Second)
}

// ends is when the last of the times ends.
func ends(spans []validate.Span) (end time.Duration) {
	for _, s := range spans {
		end = max(end, s.From+s.For)
	}
	return end
}
