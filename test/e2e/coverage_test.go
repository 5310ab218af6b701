// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/pkg/inventory"
)

const coverageHead = `# Is my controller safe?

Every controller of kube-controller-manager 1.37 reads from caches that may be stale. This page says, for each of the %d and for each
write that upstream's roles permit to it, what happens then with Fresh KCM and both feature gates on. ` + "`make update`" + ` writes it from
[pkg/inventory](../pkg/inventory); tests hold that against upstream's list of controllers, upstream's roles, and every write of every
run on a real control plane. What was measured is in [measurements](measurements.md); the words are in the [glossary](glossary.md).

| | On a stale cache | Controllers |
|---|---|---|
`

const startHead = `Before a controller starts, it waits until the caches that it reads are proven as new as the start of leadership: 10 s at most if nothing is
known about one, 60 s if one is shown to be stale (scenarios 17 and 44). It waits only for the shared informers of typed objects: not for
the cache of the publisher of cluster trust bundles, nor for the graph that the storage version migrator reads. These controllers start
at once, as they are protected in another way:

`

const openHead = `
## What is not protected, and why

- **endpoints-controller, endpointslice-controller, endpointslice-mirroring-controller**: what they make and update says what their caches of pods, or of Endpoints, show. A pod
  that is gone may get traffic, and one that is ready none, for as long as the cache lags, as on stock upstream. They are not held back, because the same update takes a pod that is gone
  out and a ready one in: without it more would go wrong, and longer. Once the cache has caught up they write again. They wait to start while a cache is stale, for 60 s at most, take no pod out because its node
  is unknown, and delete no Endpoints, and no mirrored slice, that is needed (scenarios 43 to 46).
- **disruption-controller**: what a budget allowed before the cache of pods became stale stays allowed until the budget is looked at again. It is not set to 0 while the cache is stale. That
  would take two writes for each budget whenever a watch lags, from a controller that is behind, and would stop drains on every such cluster. A watch that hangs is ended after 10 to 20 s.
- **horizontal-pod-autoscaler-controller**: replicas are raised by what the cache shows, so by too few where it lacks pods that are ready: more come with the next look. After 5 min of a stale cache,
  and 1 min if nothing can be told of it, they are lowered as on stock upstream: otherwise a watch that never recovers would keep a load that has ended running.
- **persistentvolume-attach-detach-controller**: a forced detachment waits for a proof of the nodes however long that takes, and no live read takes its place; all other detachments have one,
  as on stock upstream. So a node that is dead keeps its volumes while nothing can be proven, and pods that need them start elsewhere later: that harms less than a volume in use on two nodes.
- **legacy-serviceaccount-token-cleaner-controller**: it has no proof. Its deletion carries the resource version of the Secret, as on stock upstream, so a token that was used meanwhile is spared; a pod that
  mounts the Secret without using it, and that the cache lacks, is not. It deletes only what was marked as unused for a year, and looks once a day.

## How long a write waits

While a cache is shown to be stale, or the server refuses every proof, what waits goes on as follows. The [known limits](status.md#known-limits) name the tests.

| What | waits at most |
|---|---|
| a deletion, a scale-down or another action of a reconcile | until a proof or a live read, however long; 5 s where resource versions cannot be compared |
| an object after a start of leadership, or a relist | 60 s if nothing is known, 5 min if the cache is stale |
| an object that has written, and whose answer was lost | 1 to 2 min, 5 to 10 min if the cache is stale |
| an object that has written | until its cache has the write, as on stock upstream; for a revision 5 min if the cache is stale, 1 min if nothing is known |
| what "waits for a time" | 5 min if the cache is stale, 1 min if nothing is known, unless the row says another time |
| a controller before it starts | 10 s if nothing is known, 60 s if a cache is stale |

What is missing is made at once, but in the second, third, fourth and last row.

## All controllers

`

// byKey goes through a map in order.
func byKey(m map[string][]string) iter.Seq2[string, []string] {
	return func(yield func(string, []string) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

// modes are how the page names what stands between a write and a stale cache.
var modes = []struct {
	mode        inventory.Mode
	name, means string
}{
	{inventory.View, "waits", "The write waits until the caches have the controller's own writes, or are proven fresh; [how long](#how-long-a-write-waits) where no proof can be had."},
	{inventory.Bounded, "waits for a time", "The same, for the time that is said. After that the controller goes on as stock upstream does."},
	{inventory.InCode, "guarded", "The request carries the UID or the resource version of what it was decided on, or a live read precedes it."},
	{inventory.Exempt, "harmless", "The write is repeated, refused or late, and harms nothing."},
	{inventory.Open, "as stock", "The write may do harm, as it may on stock upstream."},
}

func modeName(mode inventory.Mode) string {
	for _, m := range modes {
		if m.mode == mode {
			return m.name
		}
	}
	return string(mode)
}

// coveragePage is docs/coverage.md; files are those of the tests that rules name.
func coveragePage(controllers []inventory.Controller, files map[string]string) string {
	controllers = slices.SortedFunc(slices.Values(controllers), func(a, b inventory.Controller) int { return strings.Compare(a.Name, b.Name) })
	var page strings.Builder
	fmt.Fprintf(&page, coverageHead, len(controllers))
	for _, m := range modes {
		n := 0
		for _, c := range controllers {
			if c.Mode() == m.mode {
				n++
			}
		}
		fmt.Fprintf(&page, "| %s | %s | %d |\n", m.name, m.means, n)
	}
	page.WriteString("\n" + startHead)
	for why, names := range byKey(inventory.StartAtOnce()) {
		fmt.Fprintf(&page, "- %s: %s.\n", strings.Join(names, ", "), why)
	}
	page.WriteString(openHead + "A controller counts where the write that is protected least does. † marks deletions that are not sent without the UID, or the resource version, that they are said to\n" +
		"carry: [design](design.md#what-the-transport-refuses). Numbers are those of [scenarios](scenarios.md).\n\n| Controller | Write | | Why | Shown by |\n|---|---|---|---|---|\n")
	for _, c := range append(controllers, inventory.Itself()) {
		name := "**" + c.Name + "**"
		if c.Name == inventory.Process {
			page.WriteString("\nBesides them the process itself writes:\n\n| Client | Write | | Why | Shown by |\n|---|---|---|---|---|\n")
		}
		if len(c.Rules) == 0 {
			fmt.Fprintf(&page, "| %s | events | harmless | Nothing acts on events. | |\n", name)
		}
		for _, r := range c.Rules {
			var shownBy []string
			for _, n := range r.Scenarios {
				shownBy = append(shownBy, fmt.Sprint(n))
			}
			for _, test := range r.Tests {
				shownBy = append(shownBy, fmt.Sprintf("[%s](../%s)", test, files[test]))
			}
			why := r.Why
			if len(r.Preconditions) > 0 {
				why += " †"
			}
			fmt.Fprintf(&page, "| %s | %s %s | %s | %s | %s |\n", name, strings.ReplaceAll(r.Verbs, " ", ", "),
				"`"+strings.ReplaceAll(r.Resources, " ", "`, `")+"`", modeName(r.Mode), why, strings.Join(shownBy, ", "))
			name = ""
		}
	}
	return page.String()
}

// TestCoverage proves that docs/coverage.md is of the inventory, that the scenarios and tests which it names exist, and that each write
// that waits has one. hack/update-scenarios.sh writes it.
func TestCoverage(t *testing.T) {
	files := readSources(t).tests
	requirePage(t, "coverage.md", coveragePage(inventory.Controllers(), files))
	for _, c := range inventory.Controllers() {
		for _, r := range c.Rules {
			if r.Mode == inventory.View || r.Mode == inventory.Bounded {
				require.Positive(t, len(r.Scenarios)+len(r.Tests), "%s, %s %s: what shows that it waits?", c.Name, r.Verbs, r.Resources)
			}
			for _, test := range r.Tests {
				require.Contains(t, files, test, c.Name)
			}
			for _, n := range r.Scenarios {
				require.True(t, slices.ContainsFunc(indexed, func(e indexEntry) bool { return e.number == n }), "%s: there is no scenario %d", c.Name, n)
			}
		}
	}
}
