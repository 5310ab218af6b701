// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
	"github.com/fresh-kcm/fresh-kcm/test/faultrig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

// passPeriod is how long node lifecycle rests between two passes over the nodes.
const passPeriod = 5 * time.Second

// nodesDie has nodes die, waits until all of them are marked, and then lets time go by in which live reads are counted.
func (t *turn) nodesDie(ctx context.Context, d spec.NodesDie) error {
	all := t.cluster.Nodes().Names()
	dead := all[:max(1, len(all)*d.Percent/100)]
	t.deaths = oracle.Deaths{Nodes: sets.New(dead...), Grace: t.grace()}
	t.say("%d of %d nodes die", len(dead), len(all))
	if err := t.kill(ctx, dead); err != nil {
		return err
	}
	told := time.Now()
	err := t.eventually(ctx, "all dead nodes to be marked", func() (bool, error) {
		marks := oracle.FirstMarked(t.truth)
		left := slices.DeleteFunc(slices.Clone(dead), func(n string) bool { _, marked := marks[n]; return marked })
		t.say("%d of %d dead nodes are marked", len(dead)-len(left), len(dead))
		if len(left) == 0 || t.everyNode() {
			return len(left) == 0, nil
		}
		// kwok misses the end of a node that it is just acting on. Such a node lives, and has to be told again.
		last := oracle.LastSign(t.truth)
		missed := slices.DeleteFunc(left, func(n string) bool { return last[n].Sub(told) < t.lease()/2 })
		if len(missed) == 0 {
			return false, nil
		}
		told = time.Now()
		if err := t.cluster.Nodes().Revive(ctx, missed...); err != nil {
			return false, err
		}
		return false, t.cluster.Nodes().Kill(ctx, missed...)
	})
	if err != nil {
		return err
	}
	var detected []time.Duration
	signs, marks := oracle.LastSign(t.truth), oracle.FirstMarked(t.truth)
	for _, node := range dead {
		detected = append(detected, marks[node].Sub(signs[node]))
		if marks[node].After(t.ended) {
			t.ended = marks[node]
		}
	}
	t.figures[sample.DetectP50], t.figures[sample.DetectP99] = quantiles(detected)
	t.readsFrom, t.readsFor = t.ended.Add(passPeriod), d.Observe.Duration
	t.say("counting live reads for %v", d.Observe.Duration)
	return faultrig.Sleep(ctx, time.Until(t.readsFrom.Add(t.readsFor)))
}

// kill makes nodes die: all of them at once, a part of them one by one.
func (t *turn) kill(ctx context.Context, nodes []string) error {
	if t.everyNode() {
		return t.cluster.Nodes().KillAll()
	}
	return t.cluster.Nodes().Kill(ctx, nodes...)
}

// revive undoes kill.
func (t *turn) revive(ctx context.Context) error {
	switch {
	case t.deaths.Nodes.Len() == 0:
		return nil
	case t.everyNode():
		return t.cluster.Nodes().ReviveAll()
	}
	return t.cluster.Nodes().Revive(ctx, t.deaths.Nodes.UnsortedList()...)
}

func (t *turn) everyNode() bool { return t.deaths.Nodes.Len() == t.spec.Nodes }

// grace and lease are those of the benchmark or upstream's.
func (t *turn) grace() time.Duration {
	if d := t.spec.Grace.Duration; d > 0 {
		return d
	}
	return 50 * time.Second
}

func (t *turn) lease() time.Duration {
	if d := t.spec.Lease.Duration; d > 0 {
		return d
	}
	return 40 * time.Second
}
