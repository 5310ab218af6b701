// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

const (
	// discovered bounds how long it takes until the garbage collector and quota, which ask every 30 s, have
	// learned of a change, and the monitor of them.
	discovered = 2 * time.Minute
	// underWay is how long a probe may take that had begun when its row went; probed is how long it takes until
	// every row has been probed.
	underWay, probed = 5 * time.Second, 11 * time.Second
	// proverAgent ends the user agent of fences and proofs.
	proverAgent = " freshness"
)

// TestDefinitionsAreFollowed: the monitor follows definitions that are created, changed and deleted. A row, its
// series and its probes come and go with what the garbage collector and quota watch, none of them goes wrong on
// the way, and in the end nothing is left of any of them.
//
//conformance:crd-versions StoredVersions: tracker and monitor follow versions that come and go
func TestDefinitionsAreFollowed(t *testing.T) {
	c := own(t, controlplane.Options{})
	kcm, err := c.StartKCM(t.Context(), controlplane.KCMOptions{Arm: controlplane.ArmP,
		// So that the log tells of each cache that is proven, too: there is something to judge.
		ProcessOptions: controlplane.ProcessOptions{Args: []string{"--vmodule=probed=3"}}})
	require.NoError(t, err)
	f := &followed{T: t, c: c, kcm: kcm}
	f.settle("no definition", nil)

	one := versionOf("v1", true, true, 1000)
	kinds := []string{"Kept", "Moved", "Ended", "Renewed"}
	definitions := map[string]*definition{}
	create := func(kinds ...string) {
		for _, kind := range kinds {
			definitions[kind] = newDefinition(t, c, kind, one)
			definitions[kind].create(t, "v1", "a", 1)
		}
	}
	remove := func(kinds ...string) {
		for _, kind := range kinds {
			f.remove(definitions[kind])
		}
	}
	create(kinds...)
	f.settle("all of them", map[string]string{"kepts": "v1", "moveds": "v1", "endeds": "v1", "reneweds": "v1"})
	f.complete(definitions["Kept"].create(t, "v1", "b", 2).GetResourceVersion(), "kepts")

	// The new version is the preferred one at once; the old one is, or is not, served any more.
	require.NoError(t, definitions["Kept"].set(t, false, versionOf("v1", true, false, 1000), versionOf("v2", true, true, 1000)))
	require.NoError(t, definitions["Moved"].set(t, false, versionOf("v1", false, false, 1000), versionOf("v2", true, true, 1000)))
	remove("Ended", "Renewed")
	f.settle("the new versions", map[string]string{"kepts": "v2", "moveds": "v2"})
	f.onlyProbed()
	f.complete(definitions["Moved"].create(t, "v2", "b", 2).GetResourceVersion(), "moveds")

	create("Renewed")
	remove("Kept")
	f.settle("one of a name that was there before", map[string]string{"moveds": "v2", "reneweds": "v1"})
	remove("Moved", "Renewed")
	f.settle("no definition", nil)
	f.onlyProbed()
	f.noFalseAlarm()
}

// followed is the kube-controller-manager and what its monitor has of the group of the definitions.
type followed struct {
	*testing.T
	c   *cluster
	kcm *controlplane.KCM
	// followed is what the page showed at last.
	followed map[schema.GroupVersionResource]bool
}

func (f *followed) remove(d *definition) {
	f.Helper()
	require.NoError(f, f.c.patient.Resource(definitions).Delete(f.Context(), d.name(), metav1.DeleteOptions{}))
	eventually(f.T, d.name()+" to be gone", func() (bool, error) {
		list, err := f.c.patient.Resource(definitions).List(f.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + d.name()})
		return err == nil && len(list.Items) == 0, err
	})
}

// rows are the group's rows on the page, by resource and version.
func (f *followed) rows() map[schema.GroupVersionResource]stalenessz.StalenesszCache {
	f.Helper()
	raw, err := f.kcm.Get(f.Context(), stalenessz.Path+"?format=json")
	require.NoError(f, err)
	var page stalenessz.Stalenessz
	require.NoError(f, json.Unmarshal(raw, &page))
	out := map[schema.GroupVersionResource]stalenessz.StalenesszCache{}
	for _, row := range page.Caches {
		if row.Group == definitionGroup {
			out[schema.GroupVersionResource{Group: row.Group, Version: row.Version, Resource: row.Resource}] = row
		}
	}
	return out
}

// series returns what of the group has series in this project's metrics.
func (f *followed) series() map[schema.GroupVersionResource]bool {
	f.Helper()
	raw, err := f.kcm.Get(f.Context(), "/metrics")
	require.NoError(f, err)
	out := map[schema.GroupVersionResource]bool{}
	for line := range strings.Lines(string(raw)) {
		name, rest, labelled := strings.Cut(line, "{")
		ours := strings.HasPrefix(name, "informer_staleness_") || strings.HasPrefix(name, "stale_controller_")
		if labels, _, _ := strings.Cut(rest, "}"); labelled && ours && label(labels, "group") == definitionGroup {
			out[schema.GroupVersionResource{Group: definitionGroup, Version: label(labels, "version"), Resource: label(labels, "resource")}] = true
		}
	}
	return out
}

func label(labels, name string) string {
	_, rest, _ := strings.Cut(","+labels, ","+name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// settle waits until the page has just these resources, in these versions, each known to be complete, and the
// metrics have series of the same ones.
func (f *followed) settle(what string, want map[string]string) {
	f.Helper()
	wanted := map[schema.GroupVersionResource]bool{}
	for resource, version := range want {
		wanted[schema.GroupVersionResource{Group: definitionGroup, Version: version, Resource: resource}] = true
	}
	var rows map[schema.GroupVersionResource]stalenessz.StalenesszCache
	began := time.Now()
	within(f.T, discovered, "the page to show "+what, func() (bool, error) {
		rows = f.rows()
		for gvr := range wanted {
			if s := rows[gvr].State; s != stalenessmonitor.Fresh && s != stalenessmonitor.Quiet {
				return false, nil
			}
		}
		return len(rows) == len(wanted), nil
	})
	f.Logf("the page shows %s after %.1fs", what, time.Since(began).Seconds())
	require.Equal(f, wanted, f.series(), "metrics of %s", what)
	f.followed = wanted
}

// onlyProbed expects that, of the group, just what the page shows is probed from now on.
func (f *followed) onlyProbed() {
	f.Helper()
	from := time.Now().Add(underWay)
	want := map[string]bool{}
	for gvr := range f.followed {
		want[fmt.Sprintf("/apis/%s/%s/%s", gvr.Group, gvr.Version, gvr.Resource)] = true
	}
	within(f.T, discovered, "all rows to be probed", func() (bool, error) {
		got := map[string]bool{}
		_, err := controlplane.ReadAudit(f.c.APIServers()[0].AuditLogPath(), 0, func(e controlplane.AuditEvent) {
			if e.RequestReceivedTimestamp.After(from) && e.ObjectRef.APIGroup == definitionGroup && strings.HasSuffix(e.UserAgent, proverAgent) {
				uri, _, _ := strings.Cut(e.RequestURI, "?")
				got[uri] = true
			}
		})
		for uri := range got {
			require.Contains(f, want, uri, "it is not, or no longer, followed")
		}
		return time.Since(from) > probed && len(got) == len(want), err
	})
}

// complete waits until a row's cache is known to have a resource version.
func (f *followed) complete(rv, resource string) {
	f.Helper()
	within(f.T, limit, resource+" to have "+rv, func() (bool, error) {
		for gvr, row := range f.rows() {
			if gvr.Resource == resource && row.StoreResourceVersion != "" {
				return notAfter(rv, row.StoreResourceVersion) == nil, nil
			}
		}
		return false, nil
	})
}

// noFalseAlarm reads the KCM's log, which tells of each state that a cache was in.
func (f *followed) noFalseAlarm() {
	f.Helper()
	log, err := os.ReadFile(f.kcm.LogPath())
	require.NoError(f, err)
	told := 0
	for line := range bytes.Lines(log) {
		if !bytes.Contains(line, []byte(definitionGroup)) || !bytes.Contains(line, []byte(`"An informer's cache`)) {
			continue
		}
		told++
		if bytes.Contains(line, []byte("reneweds")) {
			continue // Its informer backs off while the definition is gone, and so does lack what comes first after that.
		}
		for _, state := range []stalenessmonitor.State{stalenessmonitor.Lagging, stalenessmonitor.Stalled} {
			require.NotContains(f, string(line), fmt.Sprintf("state=%q", state), "nothing was held back")
		}
	}
	require.Positive(f, told, "the log tells of the group's caches")
	f.Logf("the log tells of %d changes", told)
}
