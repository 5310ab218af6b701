// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// run draws actions until it has had enough, then heals everything.
func (m *model) run(t *rapid.T) {
	owner := rapid.IntRange(0, modelOwners-1)
	res := rapid.IntRange(0, 1)
	t.Repeat(map[string]func(*rapid.T){
		"":      func(t *rapid.T) { m.check(t) },
		"write": func(t *rapid.T) { m.commit(owner.Draw(t, "owner"), res.Draw(t, "res"), "") },
		"delete": func(t *rapid.T) {
			i := res.Draw(t, "res")
			alive := m.stores[i].shows.alive()
			alive = slices.DeleteFunc(slices.Clone(alive), func(u types.UID) bool { return !slices.Contains(m.servers[i].log.alive(), u) })
			if len(alive) == 0 {
				t.Skip()
			}
			m.commit(owner.Draw(t, "owner"), i, rapid.SampledFrom(alive).Draw(t, "uid"))
		},
		"respond": func(t *rapid.T) {
			if len(m.responses) == 0 {
				t.Skip()
			}
			m.respond(rapid.IntRange(0, len(m.responses)-1).Draw(t, "response"))
		},
		"respondInOrder": func(t *rapid.T) {
			if len(m.responses) == 0 {
				t.Skip()
			}
			m.respond(0)
		},
		"event": func(t *rapid.T) { // or a bookmark: to the tracker they are one
			i := res.Draw(t, "res")
			if m.stores[i].epoch != m.servers[i].epoch {
				t.Skip()
			}
			m.show(i, rapid.IntRange(m.stores[i].rv, m.servers[i].live).Draw(t, "rv"))
		},
		"relist": func(t *rapid.T) { // perhaps from a server that lags
			i := res.Draw(t, "res")
			m.show(i, rapid.IntRange(max(1, m.servers[i].restored), m.servers[i].live).Draw(t, "rv"))
		},
		"quietProgress": func(t *rapid.T) { m.servers[res.Draw(t, "res")].live += rapid.IntRange(1, 30).Draw(t, "by") },
		"restore": func(t *rapid.T) {
			i := res.Draw(t, "res")
			m.restore(i, rapid.IntRange(1, m.servers[i].live).Draw(t, "rv"))
		},
		"beginFence": func(t *rapid.T) {
			if i := res.Draw(t, "res"); !m.stores[i].inAir {
				m.beginFence(i)
			}
		},
		"answerFence": func(t *rapid.T) {
			i := res.Draw(t, "res")
			if !m.stores[i].inAir {
				t.Skip()
			}
			m.answerFence(i)
		},
		"ensure":  func(t *rapid.T) { m.ensure(t, owner.Draw(t, "owner")) },
		"ensure2": func(t *rapid.T) { m.ensure(t, owner.Draw(t, "owner")) },
		"newUID": func(t *rapid.T) {
			m.nextID++
			m.uids[owner.Draw(t, "owner")] = types.UID(fmt.Sprintf("u%d", m.nextID))
		},
		"clear": func(t *rapid.T) { m.clear(owner.Draw(t, "owner")) },
		"opaque": func(t *rapid.T) {
			i, rv := res.Draw(t, "res"), rapid.SampledFrom([]string{"", "0", "007", "x", "-1"}).Draw(t, "rv")
			m.c.sources[modelResources[i]].Observe(rv)
			o := owner.Draw(t, "owner")
			m.c.WroteAt(ownerName(o), m.lastUID[o], modelResources[i], rv)
			m.c.sources[modelResources[i]].ObserveFence(m.c.sources[modelResources[i]].BeginFence(), rv)
		},
		"time": func(t *rapid.T) {
			m.clock.Step(time.Duration(rapid.IntRange(1, 60).Draw(t, "seconds")) * time.Second)
			m.tracker.tick()
		},
		"restart": func(t *rapid.T) { m.restart() },
		"settle":  func(t *rapid.T) { m.settle(t) },
	})
	m.settle(t)
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { newModel(faults{}).run(t) })
}
