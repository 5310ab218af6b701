// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"slices"
	"strings"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

const (
	// startLists informers list within startWithin where leadership starts, or where all were made to relist.
	startLists  = 20
	startWithin = 2 * time.Second
	// starting is the time in which the caches are proven as new as that, and the monitor asks about each for the first time.
	starting = 30 * time.Second
)

// ProofLoad is how often kube-controller-managers have asked the apiservers how fresh their caches are.
type ProofLoad struct {
	// All are the requests of package freshness, Settled those that were not made within starting after a start.
	All, Settled int
	// Over is the time that Settled were made in.
	Over time.Duration
}

// PerSecond is the rate of those that no start has caused.
func (l ProofLoad) PerSecond() float64 {
	if l.Over <= 0 {
		return 0
	}
	return float64(l.Settled) / l.Over.Seconds()
}

// And adds up the loads of two parts of a run.
func (l ProofLoad) And(other ProofLoad) ProofLoad {
	return ProofLoad{All: l.All + other.All, Settled: l.Settled + other.Settled, Over: l.Over + other.Over}
}

// Proofs counts the requests of package freshness, refused ones too.
func Proofs(events []controlplane.AuditEvent) ProofLoad {
	var all, asked, listed []time.Time
	for i := range events {
		e := &events[i]
		at := e.RequestReceivedTimestamp
		if !strings.HasPrefix(e.UserAgent, "kube-controller-manager/") {
			continue
		}
		all = append(all, at)
		if (e.Verb == "watch") != (e.Stage == "ResponseStarted") {
			continue
		}
		switch {
		case probes(e):
			asked = append(asked, at)
		case strings.HasSuffix(e.UserAgent, "informers") && (e.Verb == "list" || strings.Contains(e.RequestURI, "sendInitialEvents=true")):
			listed = append(listed, at)
		}
	}
	out := ProofLoad{All: len(asked)}
	if len(all) == 0 {
		return out
	}
	for _, times := range [][]time.Time{all, listed} {
		slices.SortFunc(times, time.Time.Compare)
	}
	settled := all[0]
	var spans [][2]time.Time
	for i := startLists - 1; i < len(listed); i++ {
		if began := listed[i-startLists+1]; listed[i].Sub(began) < startWithin {
			if began.After(settled) {
				spans = append(spans, [2]time.Time{settled, began})
			}
			settled = listed[i].Add(starting)
		}
	}
	if end := all[len(all)-1]; end.After(settled) {
		spans = append(spans, [2]time.Time{settled, end})
	}
	for _, span := range spans {
		out.Over += span[1].Sub(span[0])
		for _, at := range asked {
			if !at.Before(span[0]) && at.Before(span[1]) {
				out.Settled++
			}
		}
	}
	return out
}
