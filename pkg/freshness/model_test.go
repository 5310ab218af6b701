// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// The model is the server's history with the time of each commit, and a store that
// applies events as a reflector does. It knows nothing of fences.
type model struct {
	api  *fakeAPI
	view *fakeView
	at   map[int]time.Time // commit times by RV
	p    *Prover
	uids int
}

func (m *model) write(key string, deleted bool) {
	history, rv := m.api.snapshot()
	old, exists := stateAt(history, rv)[key]
	if deleted && !exists {
		return
	}
	uid := old.uid
	if !exists || deleted && len(history)%2 == 0 {
		m.uids++
		uid = types.UID(strconv.Itoa(m.uids))
	}
	m.at[m.api.write(key, uid, deleted)] = time.Now()
}

// deliver hands the store the next n events, and a bookmark if it then has them all.
func (m *model) deliver(n int, bookmark bool) {
	history, now := m.api.snapshot()
	m.view.mu.Lock()
	objects := maps.Clone(m.view.objects)
	rv, _ := strconv.Atoi(m.view.rv)
	m.view.mu.Unlock()
	for _, c := range history {
		if c.rv <= rv {
			continue
		}
		if n == 0 {
			bookmark = false
			break
		}
		n--
		rv = c.rv
		if c.deleted {
			delete(objects, c.key)
		} else {
			objects[c.key] = object{c.uid, m.api.text(c.rv)}
		}
	}
	if bookmark {
		rv = max(rv, now)
	}
	m.view.set(m.api.text(rv), objects)
	m.moved()
}

// moved has the prover look at the cache, if it is to look at each move.
func (m *model) moved() {
	if m.p != nil {
		m.p.Known(leases)
	}
}

// missing names an object of which the store lacks what was committed at asOf.
func (m *model) missing(asOf time.Time) string {
	history, _ := m.api.snapshot()
	m.view.mu.Lock()
	objects := maps.Clone(m.view.objects)
	m.view.mu.Unlock()
	allowed := map[string][]object{}
	for _, c := range history {
		o := object{c.uid, m.api.text(c.rv)}
		if c.deleted {
			o = object{}
		}
		if !m.at[c.rv].After(asOf) {
			allowed[c.key] = []object{o}
			continue
		}
		if allowed[c.key] == nil {
			allowed[c.key] = []object{{}}
		}
		allowed[c.key] = append(allowed[c.key], o)
	}
	for key := range objects {
		if allowed[key] == nil {
			return fmt.Sprintf("%s is only in the store", key)
		}
	}
	for key, versions := range allowed {
		if !slices.Contains(versions, objects[key]) {
			return fmt.Sprintf("%s is %v in the store, not one of %v", key, objects[key], versions)
		}
	}
	return ""
}

// behind is true if there are events that the store has not had, even if they cancel
// each other out.
func (m *model) behind() bool {
	history, _ := m.api.snapshot()
	return len(history) > 0 && !Passed(m.view.ResourceVersion(), m.api.text(history[len(history)-1].rv))
}

type op struct {
	kind   string
	key    string
	n      int
	before time.Duration
}

func drawOp(t *rapid.T, kinds ...string) op {
	return op{
		kind:   rapid.SampledFrom(kinds).Draw(t, "kind"),
		key:    rapid.SampledFrom([]string{"ns/a", "ns/b", "ns/c", "ns/d"}).Draw(t, "key"),
		n:      rapid.IntRange(0, 4).Draw(t, "n"),
		before: time.Duration(rapid.IntRange(0, 3).Draw(t, "before")) * time.Second,
	}
}

func (m *model) do(o op) {
	time.Sleep(time.Millisecond)
	switch o.kind {
	case "write":
		m.write(o.key, false)
	case "delete":
		m.write(o.key, true)
	case "elsewhere":
		m.api.bump(o.n)
	case "deliver":
		m.deliver(o.n, false)
	case "bookmark":
		m.deliver(100, true)
	case "compact":
		m.api.mu.Lock()
		m.api.compactedTo = m.api.rv - o.n
		m.api.mu.Unlock()
	case "relist": // from an apiserver that may lag
		m.view.sync(max(1, m.api.bump(0)-o.n))
		m.moved()
		if m.p != nil {
			_, _ = m.p.Fence(context.Background(), leases) // The tracker asks for one at once.
		}
	}
	time.Sleep(time.Millisecond)
}

// The default, 100, is too few: a hole in the proof by watch showed itself once in some 10,000 histories.
func init() { _ = flag.Set("rapid.checks", "2000") }

// TestNeverProvenWithoutTheWrites: whatever happens before and while a proof is made,
// Proven is not said of a store that lacks a change committed at asOf; and a store
// that keeps up is proven.
func TestNeverProvenWithoutTheWrites(t *testing.T) {
	counts := map[Outcome]int{}
	methods := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, func(t *testing.T) {
			m := &model{api: &fakeAPI{rv: 100, bookmarkAt: 1700 * time.Millisecond}, at: map[int]time.Time{}}
			m.view = newView(m.api)
			m.write("ns/a", false)
			m.write("ns/b", false)
			m.view.sync(m.api.bump(0))
			config, stop := serveUntil(m.api)
			defer stop()
			p, err := New(Options{
				Config: config, QPS: 1000, Burst: 1000,
				SmallCollection: rapid.SampledFrom([]int{-1, 2, 500}).Draw(rt, "small"),
			})
			require.NoError(rt, err)
			defer p.Close()
			tracker := rvtracker.New(rvtracker.Options{OnRewind: func() {}, SameStore: func(schema.GroupResource) bool { return true }})
			trackBy(tracker, p, leases, m.view)
			pods := newView(m.api)
			other := tracker.Register(schema.GroupResource{Resource: "pods"}, pods)
			kinds := []string{"write", "delete", "elsewhere", "deliver", "bookmark", "relist", "compact", "prove", "prove", "prove", "watch", "fence"}
			if rewinds := rapid.SampledFrom([]string{"", "rewind", "doubt"}).Draw(rt, "rewinds"); rewinds != "" {
				// A store at the same RV as before the rewind looks like one that never
				// moved, unless somebody looks.
				m.p = p
				kinds = append(kinds, rewinds)
			}

			// What happens while requests are under way is drawn before.
			var during []op
			next := func(*http.Request) {
				m.api.mu.Lock()
				if len(during) == 0 {
					m.api.mu.Unlock()
					return
				}
				o := during[0]
				during = during[1:]
				m.api.mu.Unlock()
				m.do(o)
			}
			m.api.arrived, m.api.answered = next, next

			for range rapid.IntRange(1, 25).Draw(rt, "steps") {
				switch o := drawOp(rt, kinds...); o.kind {
				case "rewind":
					if len(m.api.history) == 0 {
						continue
					}
					_, err := p.Fence(t.Context(), leases)
					require.NoError(rt, err)
					m.api.restore(m.api.bump(0) - o.n)
					for range rapid.IntRange(0, max(0, o.n-1)).Draw(rt, "grown") {
						m.write(o.key, false)
					}
					time.Sleep(time.Second)
					// Within the monitor's period: a rewind that nobody looks for until the RVs are
					// higher than before cannot be seen.
					_, err = p.Fence(t.Context(), leases)
					require.NoError(rt, err)
				case "doubt": // Another resource shows the rewind: it may be that no fence of this one does.
					if other == nil || len(m.api.history) == 0 || o.n == 0 {
						continue
					}
					pods.show(m.api.bump(0))
					m.api.restore(m.api.bump(0) - o.n)
					_, err := other.ObserveFence(other.BeginFence(), m.api.text(m.api.bump(0)))
					require.NoError(rt, err)
					require.False(rt, p.resource(leases).trusts())
					other = nil // Relists are spaced.
				case "fence":
					_, err := p.Fence(t.Context(), leases)
					require.NoError(rt, err)
				case "prove", "watch":
					prove, fenced := p.Prove, Fence{}
					if o.kind == "watch" {
						prove = p.ProveByWatch
						fenced, err = p.Fence(t.Context(), leases)
						require.NoError(rt, err)
					}
					var ops []op
					for range rapid.IntRange(0, 4).Draw(rt, "during") {
						ops = append(ops, drawOp(rt, "write", "delete", "elsewhere", "deliver", "bookmark", "compact", "none"))
					}
					m.api.mu.Lock()
					during = ops
					m.api.mu.Unlock()
					time.Sleep(time.Millisecond)
					asOf := time.Now().Add(-o.before)
					if o.kind == "watch" {
						asOf = fenced.TakenAt
					}
					upToDate := m.missing(time.Now()) == "" && !m.behind()
					held := !p.resource(leases).trusts()
					proof, err := prove(t.Context(), leases, asOf)
					require.NoError(rt, err)
					counts[proof.Outcome]++
					methods[proof.Method]++
					m.api.mu.Lock()
					untouched := len(during) == len(ops)
					during = nil
					m.api.mu.Unlock()
					switch {
					case proof.Fresh():
						require.False(rt, proof.At.Before(asOf))
						require.Empty(rt, m.missing(asOf), proof.String())
						require.Empty(rt, m.missing(proof.At), proof.String())
					case proof.Reason == reasonGone:
						shrunk := !untouched // It may have been larger when the method was chosen.
						require.True(rt, o.kind == "watch" || shrunk || m.view.Len() > p.opts.SmallCollection, "a small one can be listed")
					case upToDate && (untouched || len(ops) == 0) && !held:
						require.Fail(rt, "not proven, although nothing is missing", proof.String())
					case proof.Outcome == Stale && (untouched || len(ops) == 0):
						require.True(rt, m.behind(), proof.String())
					}
				default:
					m.do(o)
				}
			}
		})
	})
	t.Logf("outcomes %v by %v", counts, methods)
	if !t.Failed() {
		for _, o := range []Outcome{Proven, Stale, Unknown} {
			require.Positive(t, counts[o])
		}
		for _, by := range []string{methodEarlier, methodFence, methodList, methodWatch} {
			require.Positive(t, methods[by], by)
		}
	}
}

// inBubble runs f in a bubble of its own, and brings rapid's panics out of it.
func inBubble(t *testing.T, f func(*testing.T)) {
	var thrown any
	synctest.Test(t, func(t *testing.T) {
		defer func() { thrown = recover() }()
		f(t)
	})
	switch {
	case thrown == nil:
	case fmt.Sprintf("%T", thrown) == "rapid.invalidData":
		panic(thrown) // from a line of its own: rapid tells failures apart by where they come from
	default:
		panic(thrown)
	}
}
