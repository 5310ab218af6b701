// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
)

// The model is a server that keeps its whole history as a list, a store that
// shows a prefix of one of the server's histories, and the list of everything
// that was recorded. It knows nothing of heaps, gates, floors or epochs.

// entry is one committed change of the server's history.
type entry struct {
	rv      int
	id      int       // identifies the write, across restores
	created types.UID // the change created this object,
	deleted types.UID // or deleted it
}

type history []entry

func (h history) upTo(rv int) history {
	i := 0
	for i < len(h) && h[i].rv <= rv {
		i++
	}
	return h[:i:i]
}

func (h history) has(id int) bool {
	return slices.ContainsFunc(h, func(e entry) bool { return e.id == id })
}

func (h history) alive() []types.UID {
	var out []types.UID
	for _, e := range h {
		if e.created != "" {
			out = append(out, e.created)
		}
		if i := slices.Index(out, e.deleted); i >= 0 {
			out = slices.Delete(out, i, i+1)
		}
	}
	return out
}

// recorded is one WroteAt or Deleted that the controller made.
type recorded struct {
	res      int
	e        entry
	isDelete bool
	// unseen marks the documented hole: a write of the new epoch at an RV that the
	// store, still of the old epoch, shows already, or comes to show by an event that
	// is late, before a fence was below that.
	unseen bool
}

// response is a write whose response has not been handled yet.
type response struct {
	owner int
	uid   types.UID
	rec   recorded
}

type modelServer struct {
	live     int
	restored int // RV restored to in the present epoch
	epoch    int
	log      history
	past     []history // the log of each epoch before
}

type modelStore struct {
	hooked *hookedStore
	epoch  int
	rv     int
	top    int       // highest RV ever shown
	back   time.Time // since when it shows less
	shows  history
	fence  FenceToken
	inAir  bool
	begun  int  // rv at the begin of the fence
	known  bool // a fence has shown that the store is of an old epoch

	// demand, after a relist of the other store, is what this one has to show before anything is done:
	// all that its server had then. nil: nothing, or it has shown it since.
	demand history
	// unproven is the number of that relist as long as no proof begun since has succeeded.
	unproven int
}

// faults are what the mutants do, put between the model and the tracker.
type faults struct {
	dropWrite, dropWake, dropFence, dropRelist int // every n-th; 0: never
	writes, wakes, fences, relists             int
}

func hits(counter *int, every int) bool {
	if every == 0 {
		return false
	}
	*counter++
	return *counter%every == 0
}

type model struct {
	faults  faults
	clock   *testclock.FakeClock
	tracker *Tracker
	c       *Controller

	servers   [2]modelServer
	stores    [2]modelStore
	uids      map[int]types.UID // owner's UID now
	lastUID   map[int]types.UID // UID of the last record
	recs      map[int][]recorded
	responses []response
	proofs    []modelProof
	relists   int
	parked    map[int]bool
	nextID    int
	everReset bool // a restore or a regression has happened
}

var modelResources = [2]schema.GroupResource{pods, sets}

func ownerName(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: strconv.Itoa(i)}
}

const modelOwners = 3

func newModel(f faults) *model {
	m := &model{faults: f, clock: testclock.NewFakeClock(time.Unix(1000, 0)), uids: map[int]types.UID{}}
	for i := range m.stores {
		m.servers[i].live = 10
		m.stores[i] = modelStore{hooked: &hookedStore{}}
	}
	m.restart()
	for i := range m.stores {
		m.relist(i, 10)
	}
	return m
}

// restart loses the tracker and what it knew.
func (m *model) restart() {
	m.tracker = New(Options{clock: m.clock, Prover: noProver{}})
	m.tracker.relistLimits = Limits{10000 * time.Hour, 10000 * time.Hour}
	m.tracker.running = true
	m.parked, m.recs, m.lastUID, m.responses, m.proofs = map[int]bool{}, map[int][]recorded{}, map[int]types.UID{}, nil, nil
	stores := map[schema.GroupResource]Store{}
	for i := range m.stores {
		m.stores[i].hooked.observers, m.stores[i].hooked.replaceObservers = nil, nil
		m.stores[i].demand, m.stores[i].unproven = nil, 0
		m.stores[i].inAir, m.stores[i].known = false, false
		m.stores[i].top = m.stores[i].rv
		stores[modelResources[i]] = m.stores[i].hooked
	}
	m.c = m.tracker.ForController("model", stores, func(n types.NamespacedName) {
		if hits(&m.faults.wakes, m.faults.dropWake) {
			return
		}
		i, _ := strconv.Atoi(n.Name)
		delete(m.parked, i)
	})
}

// show makes the store show the server's present history up to rv.
func (m *model) show(i, rv int) {
	srv := &m.servers[i]
	if m.stores[i].rv != rv {
		m.stores[i].known = false
	}
	m.showOf(i, srv.epoch, srv.log, rv)
}

// showOf makes the store show a history up to rv.
func (m *model) showOf(i, epoch int, log history, rv int) {
	s := &m.stores[i]
	if rv >= s.top {
		s.back = time.Time{}
	} else {
		m.everReset = true
		if s.back.IsZero() {
			s.back = m.clock.Now()
		}
	}
	s.epoch, s.rv, s.shows = epoch, rv, log.upTo(rv)
	s.top = max(s.top, rv)
	s.hooked.change(strconv.Itoa(rv), func(items map[string]*metav1.ObjectMeta) {
		clear(items)
		for _, uid := range s.shows.alive() {
			items["ns/"+string(uid)] = &metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid}
		}
	})
	m.noteShown(i)
}

// commit makes a change on the server; its response is handled later.
func (m *model) commit(owner, i int, deletes types.UID) {
	srv := &m.servers[i]
	srv.live++
	m.nextID++
	e := entry{rv: srv.live, id: m.nextID, deleted: deletes}
	if deletes == "" {
		e.created = types.UID(fmt.Sprintf("o%d", m.nextID))
	}
	srv.log = append(srv.log[:len(srv.log):len(srv.log)], e)
	m.responses = append(m.responses, response{owner, m.uids[owner], recorded{res: i, e: e, isDelete: deletes != ""}})
}

func (m *model) respond(at int) {
	r := m.responses[at]
	m.responses = slices.Delete(m.responses, at, at+1)
	if m.lastUID[r.owner] != r.uid {
		m.recs[r.owner], m.lastUID[r.owner] = nil, r.uid
	}
	s := &m.stores[r.rec.res]
	r.rec.unseen = s.epoch != m.servers[r.rec.res].epoch && r.rec.e.rv <= s.rv && !s.known
	m.recs[r.owner] = append(m.recs[r.owner], r.rec)
	if hits(&m.faults.writes, m.faults.dropWrite) {
		return
	}
	if uid := r.rec.e.deleted; uid != "" {
		m.c.Deleted(ownerName(r.owner), r.uid, modelResources[r.rec.res], types.NamespacedName{Namespace: "ns", Name: string(uid)}, uid)
		return
	}
	m.c.WroteAt(ownerName(r.owner), r.uid, modelResources[r.rec.res], strconv.Itoa(r.rec.e.rv))
}

// noteUnseen marks what was recorded at an RV that the store now shows of the old epoch.
func (m *model) noteUnseen(i int) {
	s := &m.stores[i]
	for _, recs := range m.recs {
		for at := range recs {
			if r := &recs[at]; r.res == i && r.e.rv <= s.rv && !s.known && !s.shows.has(r.e.id) {
				r.unseen = true
			}
		}
	}
}

func (m *model) clear(owner int) {
	m.c.Clear(ownerName(owner), m.lastUID[owner])
	m.recs[owner] = nil
}

func (m *model) beginFence(i int) {
	s := &m.stores[i]
	s.fence, s.inAir, s.begun = m.c.sources[modelResources[i]].BeginFence(), true, s.rv
}

func (m *model) answerFence(i int) {
	s, srv := &m.stores[i], &m.servers[i]
	s.inAir = false
	s.known = s.known || (s.epoch != srv.epoch && srv.live < s.begun && s.begun == s.rv)
	if hits(&m.faults.fences, m.faults.dropFence) {
		return
	}
	m.c.sources[modelResources[i]].ObserveFence(m.stores[i].fence, strconv.Itoa(m.servers[i].live))
}

// restore puts an earlier state of etcd back.
func (m *model) restore(i, rv int) {
	m.everReset = true
	srv := &m.servers[i]
	srv.past = append(srv.past, append(history{}, srv.log...))
	srv.log, srv.live, srv.restored = srv.log.upTo(rv), rv, rv
	srv.epoch++
}

func (m *model) ensure(t failer, owner int) {
	err := m.c.EnsureReady(ownerName(owner))
	if err != nil {
		m.parked[owner] = true
		return
	}
	delete(m.parked, owner)
	for i := range m.stores {
		if m.stores[i].demand != nil {
			t.Fatalf("owner %d ready, but store %d, at %d, does not show what its server had when the other was relisted", owner, i, m.stores[i].rv)
		}
	}
	for _, r := range m.recs[owner] {
		s, srv := &m.stores[r.res], &m.servers[r.res]
		if !srv.log.has(r.e.id) || r.unseen {
			continue // lost in a restore: there is nothing left to see
		}
		if r.isDelete {
			if slices.Contains(s.shows.alive(), r.e.deleted) {
				t.Fatalf("owner %d ready, but its deleted object %s is alive in the store at %d", owner, r.e.deleted, s.rv)
			}
			continue
		}
		if !s.shows.has(r.e.id) {
			t.Fatalf("owner %d ready, but its write at %d is not in the store at %d", owner, r.e.rv, s.rv)
		}
	}
	for i := range m.stores {
		s := &m.stores[i]
		if s.epoch == m.servers[i].epoch && s.epoch == 0 && s.rv < s.top && m.clock.Since(s.back) < OwnerLimits.Unknown {
			t.Fatalf("owner %d ready, but store %d shows %d and had been at %d", owner, i, s.rv, s.top)
		}
	}
	m.recs[owner] = nil
}

type failer interface{ Fatalf(string, ...any) }

// check: whoever has nothing left to wait for has been woken.
func (m *model) check(t failer) {
	pumpTracker(t, m.tracker)
	done := !m.everReset // settle looks at those that were parked since
	for i := range m.stores {
		m.noteShown(i)
		done = done && m.stores[i].unproven == 0
	}
	if !done {
		return
	}
	for owner := range m.parked {
		done := true
		for _, r := range m.recs[owner] {
			s := &m.stores[r.res]
			done = done && s.shows.has(r.e.id) && !(r.isDelete && slices.Contains(s.shows.alive(), r.e.deleted))
		}
		if done {
			t.Fatalf("owner %d is parked though everything it did is in the stores", owner)
		}
	}
}

// settle heals everything; then nobody may be waiting and nothing be remembered.
func (m *model) settle(t failer) {
	for len(m.responses) > 0 {
		m.respond(0)
	}
	for range 3 {
		for i := range m.stores {
			m.beginFence(i)
			m.answerFence(i)
			m.servers[i].live++
			m.relist(i, m.servers[i].live)
		}
		m.clock.Step(OwnerLimits.Unknown / 4) // No limit may end a wait.
		m.tracker.tick()
		pumpTracker(t, m.tracker)
	}
	m.proveAll(t)
	if len(m.parked) > 0 {
		t.Fatalf("owners lost: %v, waiting %+v", m.parked, m.tracker.waiting())
	}
	for owner := range modelOwners {
		m.ensure(t, owner)
		m.proveAll(t) // Nobody may have asked before.
		if m.ensure(t, owner); m.parked[owner] {
			t.Fatalf("owner %d is stuck: %+v", owner, m.tracker.waiting())
		}
	}
	if n := m.c.busy.Load(); n != 0 || m.c.table.count != 0 || len(m.c.table.owners) != 0 || m.c.parked != 0 {
		t.Fatalf("something is remembered: busy %d, owners %d, parked %d", n, m.c.table.count, m.c.parked)
	}
	for _, s := range m.c.list {
		if len(s.heap) != 0 || len(s.side) != 0 || s.records != 0 || s.force != 0 || s.gate.Load() != noGate {
			t.Fatalf("something is left at %s: heap %d side %d records %d force %d", s.resource, len(s.heap), len(s.side), s.records, s.force)
		}
	}
	m.everReset = false
	for i := range m.stores {
		m.stores[i].top = m.stores[i].rv
	}
}
