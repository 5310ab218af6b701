// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
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
	// ours is what Fresh KCM does about it.
	ours string
}

var incidents = []incident{
	{"59848", "A controller restarted, listed from an apiserver that lagged, and acted on a state that it had been past before.", "Controllers start once their caches are proven as new as the start of leadership."},
	{"62772", "A CronJob ran twice for one time of its schedule.", "A CronJob is proven fresh, or read from the server, before it runs a Job."},
	{"82149", "More pods were evicted than a PodDisruptionBudget allows.", "More disruptions are allowed only by pods and owners that are proven fresh."},
	{"85221", "The watch of leases of a cluster with 5,000 nodes was lost: 580 live nodes became NotReady.", "A node is marked only by leases that are proven fresh, or by one live list of all."},
	{"88097", "The garbage collector deleted objects that were in use.", "Dependents are orphaned only if the graph is proven to have all of them."},
	{"95958", "etcd was restored from a backup: informers missed what the restore had changed.", "A consistent read shows that versions went backward; every informer relists."},
	{"105326", "More pods were evicted than a PodDisruptionBudget allows.", "More disruptions are allowed only by pods and owners that are proven fresh."},
	{"106710", "A volume was detached by force from a node that still used it.", "A volume is detached by force only by nodes that are proven fresh."},
	{"107457", "etcd was restored from a backup: informers missed what the restore had changed.", "A consistent read shows that versions went backward; every informer relists."},
	{"113081", "The clock of a node was set back: the node became Unknown, though it was alive.", "Any change of `renewTime` is a heartbeat."},
	{"114603", "The garbage collector deleted objects that were in use.", "Dependents are orphaned only if the graph is proven to have all of them."},
	{"117193", "An EndpointSlice stayed stale.", "What a Service lacks is published as soon as the cache shows the controller's own writes."},
	{"118501", "etcd was restored from a backup: informers missed what the restore had changed.", "A consistent read shows that versions went backward; every informer relists."},
	{"119862", "A new node's taint was taken off, a pod was bound to it, and was evicted for the taint that was gone.", "The taint is verified when the eviction is due, and the pod deleted by UID."},
	{"121474", "Event handlers were hours behind a cache that was fresh.", "The lag of every handler is measured and published."},
	{"121793", "A connection died, and was found dead only after the grace period of nodes: all nodes became NotReady.", "A node is marked only by leases that are proven fresh, or by one live list of all."},
	{"124547", "An EndpointSlice stayed stale.", "What a Service lacks is published as soon as the cache shows the controller's own writes."},
	{"125638", "An EndpointSlice stayed stale.", "What a Service lacks is published as soon as the cache shows the controller's own writes."},
	{"129795", "A controller made more pods than were asked for.", "An owner is not reconciled before the caches have its controller's own writes."},
	{"139992", "Pods were evicted for a taint that was gone.", "The taint is verified when the eviction is due, and the pod deleted by UID."},
	{"141887", "Pod garbage collection deletes pods by what its cache shows of pods and nodes.", "Pods are deleted by UID, and those of nodes out of service only by nodes that are proven fresh."},
	{"141888", "A volume is detached by force by what the cache shows of the node.", "A volume is detached by force only by nodes that are proven fresh."},
	{"etcd-20221", "A watch of etcd lost an event, and went on with later ones.", "A node is read from the server before its pods are evicted; an informer relists once a list shows what it has passed."},
	{"etcd-20573", "A watch of etcd could not be resumed where it had been.", "Owners are woken by the relist; evictions wait for a proof or a live read while the cache is as old as the last list."},
	{"etcd-20655", "A watch of etcd lost an event, and went on with later ones.", "A node is read from the server before its pods are evicted; an informer relists once a list shows what it has passed."},
	{"gardener-15708", "A watch was half open for two hours: it brought nothing, and nobody noticed.", "A stalled watch is noticed and ended."},
}

// shownByTest has the incidents that a test shows with the real controllers on virtual time, in place of a scenario: what it takes
// lasts for minutes on stock.
var shownByTest = map[string]unitTest{"117193": endpointsTest, "124547": endpointsTest, "125638": endpointsTest}

// unitTest is a test outside of this folder.
type unitTest struct{ name, file, stock string }

var endpointsTest = unitTest{"TestEndpointsThatAreNotSeen", "test/composition/endpoints_test.go", "U1: tried again after a backoff of up to 1000 s, or not at all"}

// notOurs are incidents of other processes, by which.
var notOurs = []struct{ process, name, happened string }{
	{"kube-proxy", "28674", "An update of an Endpoints object was missed: rules named pods that were gone."},
	{"kube-proxy", "76338", "Watches hung after errors of the apiserver: rules grew old, and nobody noticed."},
	{"kubelet", "131115", "etcd was restored from a backup: a kubelet went on running a pod that was gone."},
	{"kube-scheduler", "55587", "The deletion of a pod was missed: its node stayed full."},
	{"kube-scheduler", "94437", "The deletion of a node was missed: pods were bound to it over and over."},
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
it does. ` + "`ARM=U1`" + ` or ` + "`ARM=P`" + ` runs one arm; the command without it runs Fresh KCM, the arm that goes wrong, and U1, which is only reported
where another arm is the one. ` + "`make update`" + ` writes this page from the code of ` + "`test/e2e`" + `.

| Report | What happened | Scenario | Stock | What Fresh KCM does | Command |
|---|---|---|---|---|---|
`

const notOursHead = `
## Not ours

The same faults hurt other processes, whose caches are theirs: this build changes nothing there.

| Process | Report | What happened |
|---|---|---|
`

// incidentsPage is docs/incidents.md.
func incidentsPage(entries []indexEntry) string {
	var page strings.Builder
	page.WriteString(incidentsHead)
	for _, i := range incidents {
		of := slices.DeleteFunc(slices.Clone(entries), func(e indexEntry) bool { return !slices.Contains(e.incidents, i.name) })
		if len(of) == 0 {
			test := shownByTest[i.name]
			fmt.Fprintf(&page, "| %s | %s | [%s](../%s) | %s | %s | `go test ./%s -run %s` |\n",
				i.link(), i.happened, test.name, test.file, test.stock, i.ours, path.Dir(test.file), test.name)
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
		fmt.Fprintf(&page, "| %s | %s | %s | %s | %s | `make e2e FILTER=incident:%s` |\n",
			i.link(), i.happened, strings.Join(scenarios, "; "), strings.Join(stock, "; "), i.ours, i.name)
	}
	page.WriteString(notOursHead)
	for _, i := range notOurs {
		fmt.Fprintf(&page, "| %s | %s | %s |\n", i.process, incident{name: i.name}.link(), i.happened)
	}
	return page.String()
}

// TestIncidents proves that docs/incidents.md has every incident, with a scenario or a test that shows it, which is there.
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
		test, byTest := shownByTest[i.name]
		require.NotEqual(t, shown[i.name], byTest, "incident %s has a scenario, or a test, and not both", i.name)
		require.NotEmpty(t, i.ours, i.name)
		if byTest {
			source, err := os.ReadFile(filepath.Join("..", "..", test.file))
			require.NoError(t, err)
			require.Contains(t, string(source), "func "+test.name+"(", "incident %s", i.name)
		}
	}
	requirePage(t, "incidents.md", incidentsPage(indexed))
}
