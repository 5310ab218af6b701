// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"slices"
	"strconv"
)

// modelProof is a proof under way: what the server had when it began has to be in the store.
type modelProof struct {
	p       pendingProof
	i       int
	live    history
	relists int
}

// noProver is never called: the model begins and ends proofs itself.
type noProver struct{ Prover }

// relist replaces the store's content. The other store may then show another time.
func (m *model) relist(i, rv int) {
	if other := 1 - i; m.stores[i].rv > 0 {
		m.relists++
		m.stores[other].demand, m.stores[other].unproven = append(history{}, m.servers[other].log...), m.relists
		m.noteShown(other)
	}
	if !hits(&m.faults.relists, m.faults.dropRelist) {
		for _, fn := range m.stores[i].hooked.replaceObservers {
			fn(strconv.Itoa(rv))
		}
	}
	m.show(i, rv)
}

// fresh says whether a store shows all of a history that is not lost, and nothing that is.
func (m *model) fresh(i int, live history) bool {
	log, shows := m.servers[i].log, m.stores[i].shows
	for _, e := range live {
		if log.has(e.id) && !shows.has(e.id) {
			return false
		}
	}
	return !slices.ContainsFunc(shows, func(e entry) bool { return !log.has(e.id) })
}

// noteShown must be called after every change of what a store shows, or has to.
func (m *model) noteShown(i int) {
	if m.fresh(i, m.stores[i].demand) {
		m.stores[i].demand = nil
	}
}

func (m *model) beginProofs() {
	for _, p := range m.tracker.dueProofs() {
		i := slices.Index(modelResources[:], p.src.resource)
		m.proofs = append(m.proofs, modelProof{p, i, append(history{}, m.servers[i].log...), m.relists})
	}
}

func (m *model) answerProof(at int) {
	p := m.proofs[at]
	m.proofs = slices.Delete(m.proofs, at, at+1)
	var err error
	if !m.fresh(p.i, p.live) {
		err = ErrStale
	} else if p.p.seq > 0 && p.relists >= m.stores[p.i].unproven {
		m.stores[p.i].unproven = 0
	}
	if err == nil && p.p.back > 0 {
		m.stores[p.i].top = m.stores[p.i].rv // It has what the server has.
	}
	m.tracker.proved(p.p, err)
	m.tracker.endProof(p.p.src)
}

// proveAll makes all proofs that are asked for.
func (m *model) proveAll(t failer) {
	for m.beginProofs(); len(m.proofs) > 0; m.beginProofs() {
		m.answerProof(0)
		pumpTracker(t, m.tracker)
	}
}
