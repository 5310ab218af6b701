// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// driver chooses what happens: rapid, or the bytes of a fuzz target.
type driver interface {
	failer
	// choose returns a number from lo to hi.
	choose(what string, lo, hi int) int
}

// actions are what can happen. One that cannot now returns false.
func (m *model) actions() map[string]func(driver) bool {
	owner := func(d driver) int { return d.choose("owner", 0, modelOwners-1) }
	res := func(d driver) int { return d.choose("res", 0, 1) }
	ensure := func(d driver) bool {
		m.ensure(d, owner(d))
		return true
	}
	return map[string]func(driver) bool{
		"write": func(d driver) bool {
			m.commit(owner(d), res(d), "")
			return true
		},
		"delete": func(d driver) bool {
			i := res(d)
			alive := m.stores[i].shows.alive()
			alive = slices.DeleteFunc(slices.Clone(alive), func(u types.UID) bool { return !slices.Contains(m.servers[i].log.alive(), u) })
			if len(alive) == 0 {
				return false
			}
			m.commit(owner(d), i, alive[d.choose("uid", 0, len(alive)-1)])
			return true
		},
		"respond": func(d driver) bool {
			if len(m.responses) == 0 {
				return false
			}
			m.respond(d.choose("response", 0, len(m.responses)-1))
			return true
		},
		"respondInOrder": func(driver) bool {
			if len(m.responses) == 0 {
				return false
			}
			m.respond(0)
			return true
		},
		"event": func(d driver) bool { // or a bookmark: to the tracker they are one
			i := res(d)
			if m.stores[i].epoch != m.servers[i].epoch {
				return false
			}
			m.show(i, d.choose("rv", m.stores[i].rv, m.servers[i].live))
			return true
		},
		"lateEvent": func(d driver) bool { // queued before a restore
			i := res(d)
			s, srv := &m.stores[i], &m.servers[i]
			if s.epoch == srv.epoch {
				return false
			}
			log := srv.past[s.epoch]
			if len(log) == 0 || log[len(log)-1].rv <= s.rv {
				return false
			}
			m.showOf(i, s.epoch, log, d.choose("rv", s.rv, log[len(log)-1].rv))
			m.noteUnseen(i)
			return true
		},
		"relist": func(d driver) bool { // perhaps from a server that lags
			i := res(d)
			m.relist(i, d.choose("rv", max(1, m.servers[i].restored), m.servers[i].live))
			return true
		},
		"beginProofs": func(driver) bool {
			m.beginProofs()
			return true
		},
		"answerProof": func(d driver) bool {
			if len(m.proofs) == 0 {
				return false
			}
			m.answerProof(d.choose("proof", 0, len(m.proofs)-1))
			return true
		},
		"quietProgress": func(d driver) bool {
			m.servers[res(d)].live += d.choose("by", 1, 30)
			return true
		},
		"restore": func(d driver) bool {
			i := res(d)
			m.restore(i, d.choose("rv", 1, m.servers[i].live))
			return true
		},
		"beginFence": func(d driver) bool {
			if i := res(d); !m.stores[i].inAir {
				m.beginFence(i)
			}
			return true
		},
		"answerFence": func(d driver) bool {
			i := res(d)
			if !m.stores[i].inAir {
				return false
			}
			m.answerFence(i)
			return true
		},
		"ensure":  ensure,
		"ensure2": ensure,
		"newUID": func(d driver) bool {
			m.nextID++
			m.uids[owner(d)] = types.UID(fmt.Sprintf("u%d", m.nextID))
			return true
		},
		"clear": func(d driver) bool {
			m.clear(owner(d))
			return true
		},
		"opaque": func(d driver) bool {
			opaque := []string{"", "0", "007", "x", "-1"}
			i, rv := res(d), opaque[d.choose("rv", 0, len(opaque)-1)]
			m.c.sources[modelResources[i]].observe(rv)
			o := owner(d)
			m.c.WroteAt(ownerName(o), m.lastUID[o], modelResources[i], rv)
			m.c.sources[modelResources[i]].ObserveFence(m.c.sources[modelResources[i]].BeginFence(), rv)
			return true
		},
		"time": func(d driver) bool {
			m.clock.Step(time.Duration(d.choose("seconds", 1, 60)) * time.Second)
			m.tracker.tick()
			return true
		},
		"restart": func(driver) bool {
			m.restart()
			return true
		},
		"settle": func(d driver) bool {
			m.settle(d)
			return true
		},
	}
}

// rapidDriver has rapid choose.
type rapidDriver struct{ *rapid.T }

func (d rapidDriver) choose(what string, lo, hi int) int {
	return rapid.IntRange(lo, hi).Draw(d.T, what)
}

// run draws actions until rapid has had enough, then heals everything.
func (m *model) run(t *rapid.T) {
	repeat := map[string]func(*rapid.T){"": func(t *rapid.T) { m.check(t) }}
	for name, act := range m.actions() {
		repeat[name] = func(t *rapid.T) {
			if !act(rapidDriver{t}) {
				t.Skip()
			}
		}
	}
	t.Repeat(repeat)
	m.settle(t)
}

// bytesDriver chooses by the bytes of a fuzz target, one for each choice.
type bytesDriver struct {
	failer
	data []byte
}

func (d *bytesDriver) choose(_ string, lo, hi int) int {
	if len(d.data) == 0 {
		return lo
	}
	b := int(d.data[0])
	d.data = d.data[1:]
	return lo + b%(hi-lo+1)
}

// runBytes does the actions that the bytes say, then heals everything.
func (m *model) runBytes(t failer, data []byte) {
	d := &bytesDriver{t, data}
	actions := m.actions()
	names := slices.Sorted(maps.Keys(actions))
	for len(d.data) > 0 {
		actions[names[d.choose("action", 0, len(names)-1)]](d)
		m.check(t)
	}
	m.settle(t)
}

// The default is 100; these take a quarter of a second.
func init() { _ = flag.Set("rapid.checks", "2000") }

//conformance:kep-5504 Story 2: a controller knows when its cache has its last writes
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { newModel(faults{}).run(t) })
}
