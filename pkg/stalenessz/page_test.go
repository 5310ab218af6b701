// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessz

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

type term struct {
	caches []stalenessmonitor.Cache
	waits  []Wait
}

func (t *term) Caches() []stalenessmonitor.Cache        { return t.caches }
func (t *term) Objects(schema.GroupVersionResource) int { return 7 }
func (t *term) Recorded() int                           { return len(t.waits) }
func (t *term) Waits(out *Longest) {
	for _, w := range t.waits {
		if out.Of(w.Controller).Wants(w.Since) {
			out.Add(w)
		}
	}
}

func exampleTerm() *term {
	now := time.Now()
	return &term{
		caches: []stalenessmonitor.Cache{
			{
				Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, State: stalenessmonitor.Quiet, Since: now.Add(-time.Hour),
				Proven: now.Add(-3 * time.Second), Age: 3 * time.Second, Stored: "10", Received: "10", Fenced: "90",
				History: []stalenessmonitor.Sample{{State: stalenessmonitor.Unknown, Age: -1}, {State: stalenessmonitor.Quiet, Age: 4 * time.Second}},
			},
			{
				Resource: pods, State: stalenessmonitor.Stalled, Reason: stalenessmonitor.ReasonWatch, Detail: "lacks <b>3</b> changes", Since: now.Add(-90 * time.Second),
				Proven: now.Add(-95 * time.Second), Age: 95 * time.Second, Stored: "10", Received: "12", Fenced: "90", Lag: stalenessmonitor.Lag{Watch: 78, Queue: 2},
				Handlers: []stalenessmonitor.Handler{{Name: "tainteviction", Delivered: "4", Lag: 75 * time.Second, Stalled: true}, {Name: "daemon", Delivered: "10"}},
			},
		},
		waits: []Wait{{Controller: "daemonset", Owner: "default/web", Resource: schema.GroupResource{Resource: "pods"}, Reason: "own_writes", For: "resource version 12", Why: "Write", Since: now.Add(-time.Minute)}},
	}
}

func get(t *testing.T, p *Page, target, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

func TestPageForms(t *testing.T) {
	p := &Page{Monitoring: true, Consistency: true}
	remove := p.Add(exampleTerm())
	for name, tc := range map[string]struct{ target, accept, contentType, has string }{
		"browser":    {Path, browser, "text/html; charset=utf-8", `<td class="state stalled">stalled</td>`},
		"curl":       {Path, "*/*", "text/plain; charset=utf-8", "daemonsets.apps"},
		"no accept":  {Path, "", "text/plain; charset=utf-8", "default/web"},
		"likes best": {Path, "text/html;q=0.1, application/json", "application/json", `"kind": "Stalenessz"`},
		"tool":       {Path, "application/json", "application/json", `"apiVersion": "stalenessz.fresh-kcm.io/v1alpha1"`},
		"handlers":   {Path, browser, "text/html; charset=utf-8", `<td>tainteviction</td><td>pods</td><td class="n state stalled">1m15s</td><td>no</td><td class="n">6</td>`},
		"asked json": {Path + "?format=json", browser, "application/json", `"kind": "Stalenessz"`},
		"asked text": {Path + "?format=text", browser, "text/plain; charset=utf-8", "78 in the watch, 2 in the queue"},
	} {
		t.Run(name, func(t *testing.T) {
			w := get(t, p, tc.target, tc.accept)
			require.Equal(t, http.StatusOK, w.Code)
			require.Equal(t, tc.contentType, w.Header().Get("Content-Type"))
			require.Contains(t, w.Body.String(), tc.has)
		})
	}
	html := get(t, p, Path, browser).Body.String()
	require.NotContains(t, html, "<b>3</b>", "what comes from outside is escaped")
	require.NotContains(t, html, "<script")
	require.NotContains(t, html, "://", "nothing is loaded from elsewhere")
	require.Equal(t, http.StatusBadRequest, get(t, p, Path+"?format=yaml", "").Code)

	remove()
	for _, accept := range []string{browser, "*/*"} {
		require.Contains(t, get(t, p, Path, accept).Body.String(), "not the leader")
	}
	post := httptest.NewRecorder()
	p.ServeHTTP(post, httptest.NewRequest(http.MethodPost, Path, nil))
	require.Equal(t, http.StatusMethodNotAllowed, post.Code)
}

func TestPageJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Page{Monitoring: true}
		p.Add(exampleTerm())
		var got Stalenessz
		require.NoError(t, json.Unmarshal(get(t, p, Path, "application/json").Body.Bytes(), &got))
		require.True(t, got.Leading)
		require.Equal(t, map[string]bool{"MonitorInformerStaleness": true, "StaleControllerConsistency": false}, got.Gates)
		require.Len(t, got.Caches, 2)
		stalled := got.Caches[0]
		require.Equal(t, "pods", stalled.Resource, "what needs a look comes first")
		require.Equal(t, stalenessmonitor.Stalled, stalled.State)
		require.InDelta(t, 95, *stalled.AgeSeconds, 0)
		require.Equal(t, 7, stalled.Objects)
		require.Equal(t, []StalenesszHandler{
			{Name: "tainteviction", DeliveredResourceVersion: "4", LagSeconds: 75, Stalled: true}, {Name: "daemon", DeliveredResourceVersion: "10"},
		}, stalled.Handlers)
		require.Equal(t, []float64{-1, 4}, got.Caches[1].AgeHistorySeconds)
		require.Len(t, got.Waits, 1)
		require.InDelta(t, 60, got.Waits[0].WaitSeconds, 0)
		require.Equal(t, "own_writes", got.Waits[0].Reason)
	})
}

// With leader migration there may be two informers of one resource: no metric may come twice, and the
// worse one counts.
func TestPageMergesTerms(t *testing.T) {
	p := &Page{Monitoring: true}
	p.Add(exampleTerm())
	other := exampleTerm()
	other.caches[0].Proven = time.Now().Add(-time.Hour)
	p.Add(other)
	got := p.Caches()
	require.Len(t, got, 2)
	require.Equal(t, other.caches[0].Proven, got[0].Proven)
}

func TestPageOfAGateThatIsOff(t *testing.T) {
	p := &Page{Consistency: true}
	p.Add(&term{})
	require.Contains(t, get(t, p, Path, "*/*").Body.String(), "MonitorInformerStaleness is off")
}
