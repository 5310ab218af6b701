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
run on a real control plane. What was measured is in [status](status.md); the words are in the [glossary](glossary.md).

| | On a stale cache | Controllers |
|---|---|---|
`

const startHead = `Before a controller starts, it waits until the caches that it reads are proven as new as the start of leadership: 10 s at most if nothing is
known about one, 60 s if one is shown to be stale (scenarios 17 and 44). It waits only for the shared informers of typed objects: not for
the cache of the publisher of cluster trust bundles, nor for the graph that the storage version migrator reads. These controllers start
at once, as they are protected in another way:

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
	{inventory.View, "waits", "The write waits until the caches have the controller's own writes, or are proven fresh."},
	{inventory.Bounded, "waits for a time", "The same, for a limited time. After that the controller goes on as stock upstream does."},
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

// coveragePage is docs/coverage.md.
func coveragePage(controllers []inventory.Controller) string {
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
	page.WriteString("\nA controller counts where the write that is protected least does. † marks deletions that are not sent without the UID, or the resource version, that they are said to\n" +
		"carry: [design](design.md#what-the-transport-refuses).\n\n| Controller | Write | | Why | Scenarios |\n|---|---|---|---|---|\n")
	for _, c := range append(controllers, inventory.Itself()) {
		name := "**" + c.Name + "**"
		if c.Name == inventory.Process {
			page.WriteString("\nBesides them the process itself writes:\n\n| Client | Write | | Why | Scenarios |\n|---|---|---|---|---|\n")
		}
		if len(c.Rules) == 0 {
			fmt.Fprintf(&page, "| %s | events | harmless | Nothing acts on events. | |\n", name)
		}
		for _, r := range c.Rules {
			var scenarios []string
			for _, n := range r.Scenarios {
				scenarios = append(scenarios, fmt.Sprint(n))
			}
			why := r.Why
			if len(r.Preconditions) > 0 {
				why += " †"
			}
			fmt.Fprintf(&page, "| %s | %s %s | %s | %s | %s |\n", name, strings.ReplaceAll(r.Verbs, " ", ", "),
				"`"+strings.ReplaceAll(r.Resources, " ", "`, `")+"`", modeName(r.Mode), why, strings.Join(scenarios, ", "))
			name = ""
		}
	}
	return page.String()
}

// TestCoverage proves that docs/coverage.md is of the inventory, and that the scenarios which it names exist. hack/update-scenarios.sh
// writes it.
func TestCoverage(t *testing.T) {
	requirePage(t, "coverage.md", coveragePage(inventory.Controllers()))
	for _, c := range inventory.Controllers() {
		for _, r := range c.Rules {
			for _, n := range r.Scenarios {
				require.True(t, slices.ContainsFunc(indexed, func(e indexEntry) bool { return e.number == n }), "%s: there is no scenario %d", c.Name, n)
			}
		}
	}
}
