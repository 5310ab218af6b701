// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// incident is a report of harm that a stale cache, or a wrong one, did in somebody's cluster.
type incident struct {
	// name is the number of an issue of kubernetes/kubernetes, or another project's name and number.
	name     string
	happened string
}

var incidents = []incident{
	{"59848", "A controller restarted, listed from an apiserver that lagged, and acted on a state that it had been past before."},
	{"62772", "A CronJob ran twice for one time of its schedule."},
	{"82149", "More pods were evicted than a PodDisruptionBudget allows."},
	{"85221", "The watch of leases of a cluster with 5,000 nodes was lost: 580 live nodes became NotReady."},
	{"88097", "The garbage collector deleted objects that were in use."},
	{"95958", "etcd was restored from a backup: informers missed what the restore had changed."},
	{"105326", "More pods were evicted than a PodDisruptionBudget allows."},
	{"106710", "A volume was detached by force from a node that still used it."},
	{"107457", "etcd was restored from a backup: informers missed what the restore had changed."},
	{"113081", "The clock of a node was set back: the node became Unknown, though it was alive."},
	{"114603", "The garbage collector deleted objects that were in use."},
	{"117193", "An EndpointSlice stayed stale."},
	{"118501", "etcd was restored from a backup: informers missed what the restore had changed."},
	{"119862", "A new node's taint was taken off, a pod was bound to it, and was evicted for the taint that was gone."},
	{"121474", "Event handlers were hours behind a cache that was fresh."},
	{"121793", "A connection died, and was found dead only after the grace period of nodes: all nodes became NotReady."},
	{"124547", "An EndpointSlice stayed stale."},
	{"125638", "An EndpointSlice stayed stale."},
	{"129795", "A controller made more pods than were asked for."},
	{"139992", "Pods were evicted for a taint that was gone."},
	{"141887", "Pod garbage collection deletes pods by what its cache shows of pods and nodes."},
	{"141888", "A volume is detached by force by what the cache shows of the node."},
	{"etcd-20221", "A watch of etcd lost an event, and went on with later ones."},
	{"etcd-20573", "A watch of etcd could not be resumed where it had been."},
	{"etcd-20655", "A watch of etcd lost an event, and went on with later ones."},
	{"gardener-15708", "A watch was half open for two hours: it brought nothing, and nobody noticed."},
}

// notShown says why an incident has no scenario.
var notShown = map[string]string{
	"117193": "EndpointSlices are [as on stock](coverage.md).",
	"124547": "EndpointSlices are [as on stock](coverage.md).",
	"125638": "EndpointSlices are [as on stock](coverage.md).",
}

// projects are the repositories of the reports that are not of kubernetes/kubernetes.
var projects = map[string]string{"etcd": "etcd-io/etcd", "gardener": "gardener/gardener"}

// link is the report, as a link.
func (i incident) link() string {
	project, number, other := strings.Cut(i.name, "-")
	repository := projects[project]
	if !other {
		repository, number = "kubernetes/kubernetes", i.name
	}
	return fmt.Sprintf("[%s#%s](https://github.com/%s/issues/%s)", repository, number, repository, number)
}

const incidentsHead = `# Incidents

What has happened in clusters because a controller's cache was stale, or wrong, and the scenario that has it happen again on a real
control plane. *Stock* is the arm of stock upstream that goes wrong today, and the rule that it breaks: U0 has the staleness gates
off, U1 is stock as it comes. [Fresh KCM](glossary.md#how-it-is-built-and-tested) breaks no rule in any of them: the run ends with an error if
it does. ` + "`ARM=U1`" + ` or ` + "`ARM=P`" + ` runs one arm. The same faults hurt kube-proxy, kubelets and the scheduler, whose caches are theirs: this build changes
nothing there. ` + "`make update`" + ` writes this page from the code of ` + "`test/e2e`" + `.

| Report | What happened | Scenario | Stock | Command |
|---|---|---|---|---|
`

// incidentsPage is docs/incidents.md.
func incidentsPage(entries []indexEntry) string {
	var page strings.Builder
	page.WriteString(incidentsHead)
	for _, i := range incidents {
		of := slices.DeleteFunc(slices.Clone(entries), func(e indexEntry) bool { return !slices.Contains(e.incidents, i.name) })
		if len(of) == 0 {
			fmt.Fprintf(&page, "| %s | %s | none: %s | | |\n", i.link(), i.happened, notShown[i.name])
			continue
		}
		var scenarios, stock []string
		for _, e := range of {
			scenarios = append(scenarios, fmt.Sprintf("[%d, %s](../test/e2e/%s)", e.number, e.title, e.file))
			if hurt := e.hurt(); !slices.Contains(stock, hurt) {
				stock = append(stock, hurt)
			}
		}
		slices.Sort(scenarios)
		slices.Sort(stock)
		fmt.Fprintf(&page, "| %s | %s | %s | %s | `make e2e FILTER=incident:%s` |\n",
			i.link(), i.happened, strings.Join(scenarios, "; "), strings.Join(stock, "; "), i.name)
	}
	return page.String()
}

// TestIncidents proves that docs/incidents.md has every incident, with a scenario or the reason why there is none.
// hack/update-scenarios.sh writes it.
func TestIncidents(t *testing.T) {
	known := map[string]bool{}
	for _, i := range incidents {
		known[i.name] = true
	}
	shown := map[string]bool{}
	for _, e := range indexed {
		for _, name := range e.incidents {
			require.True(t, known[name], "scenario %d, %s, shows incident %s, which incidents does not have", e.number, e.title, name)
			shown[name] = true
		}
	}
	for _, i := range incidents {
		require.NotEqual(t, shown[i.name], notShown[i.name] != "", "incident %s has a scenario, or a reason why it has none, and not both", i.name)
	}
	requirePage(t, "incidents.md", incidentsPage(indexed))
}
