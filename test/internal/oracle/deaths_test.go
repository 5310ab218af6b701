// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// A node that was revived is not to be evicted from, nor marked again before it was silent again.
func TestRevived(t *testing.T) {
	alive, unknown := ready(corev1.ConditionTrue, 0), ready(corev1.ConditionUnknown, 0)
	deaths := Deaths{Nodes: sets.New("n"), Grace: 20 * time.Second}
	for name, tt := range map[string]struct {
		history func(h *history)
		want    map[string]int
	}{
		"tainted as it came back": {func(h *history) {
			h.node(watch.Modified, "n", alive)
			h.node(watch.Modified, "n", alive, tainted(unreachable))
		}, nil},
		"tainted later": {func(h *history) {
			h.node(watch.Modified, "n", alive)
			h.idle(3)
			h.node(watch.Modified, "n", alive, tainted(unreachable))
		}, map[string]int{"S2 " + RuleLiveTainted: 1}},
		"marked again": {func(h *history) {
			h.renewed("n")
			h.node(watch.Modified, "n", alive)
			h.idle(5)
			h.renewed("n")
			h.idle(10)
			h.node(watch.Modified, "n", unknown)
		}, map[string]int{"S2 " + RuleMarkedEarly: 1}},
		"marked again when it was silent for long": {func(h *history) {
			h.renewed("n")
			h.node(watch.Modified, "n", alive)
			h.idle(21)
			h.node(watch.Modified, "n", unknown)
		}, nil},
		"it came back as it was marked": {func(h *history) {
			h.renewed("n")
			h.node(watch.Modified, "n", alive)
			h.idle(25)
			h.renewed("n")
			h.idle(3)
			h.node(watch.Modified, "n", unknown)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			h.node(watch.Added, "n", alive)
			h.renewed("n")
			h.idle(30)
			h.node(watch.Modified, "n", unknown)
			tt.history(h)
			got := Count(Unjustified(truth.Replay(h.events), h.writes, deaths))
			require.True(t, maps.Equal(tt.want, got), "%v", got)
		})
	}
}

// A node that was silent already when the recording began was so for longer than the record shows.
func TestSilentBefore(t *testing.T) {
	for name, want := range map[string]int{"early": 1, "in time": 0} {
		h := &history{}
		h.idle(100)
		h.node(watch.Added, "n", ready(corev1.ConditionTrue, 60))
		h.lease("n", 90, "")
		h.events[truth.Nodes][0].Initial, h.events[truth.Leases][0].Initial = true, true
		h.idle(4)
		if name == "in time" {
			h.idle(4)
		}
		h.node(watch.Modified, "n", ready(corev1.ConditionUnknown, 60))
		found := Unjustified(truth.Replay(h.events), h.writes, Deaths{Nodes: sets.New("n"), Grace: 20 * time.Second})
		require.Len(t, found, want, name)
	}
}

func TestLate(t *testing.T) {
	alive, unknown := ready(corev1.ConditionTrue, 0), ready(corev1.ConditionUnknown, 0)
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	deaths := Deaths{Grace: 20 * time.Second}
	bound := deaths.Bound(500 * time.Millisecond)
	require.Equal(t, 31*time.Second, bound)
	for name, tt := range map[string]struct {
		history func(h *history)
		until   int64
		excuses []Period
		late    bool
	}{
		"marked in time":     {func(h *history) { h.idle(29); h.node(watch.Modified, "n", unknown) }, 100, nil, false},
		"marked late":        {func(h *history) { h.idle(32); h.node(watch.Modified, "n", unknown) }, 100, nil, true},
		"not marked":         {func(*history) {}, 100, nil, true},
		"not yet":            {func(*history) {}, 30, nil, false},
		"revived before":     {func(h *history) { h.idle(25); h.renewed("n") }, 35, nil, false},
		"revived after":      {func(h *history) { h.idle(45); h.renewed("n") }, 50, nil, true},
		"gone":               {func(h *history) { h.idle(10); h.node(watch.Deleted, "n") }, 100, nil, false},
		"it could be known":  {func(*history) {}, 100, []Period{{at(4), at(10)}}, true},
		"marked after that":  {func(h *history) { h.idle(35); h.node(watch.Modified, "n", unknown) }, 100, []Period{{at(4), at(10)}}, false},
		"one after another":  {func(h *history) { h.idle(60); h.node(watch.Modified, "n", unknown) }, 100, []Period{{at(20), at(35)}, {at(4), at(10)}}, false},
		"an excuse too late": {func(h *history) { h.idle(60); h.node(watch.Modified, "n", unknown) }, 100, []Period{{at(40), at(50)}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			h.node(watch.Added, "n", alive)
			h.renewed("n")
			tt.history(h)
			found := Late(truth.Replay(h.events), bound, at(tt.until), tt.excuses...)
			require.Equal(t, tt.late, len(found) == 1, "%v", found)
		})
	}
}
