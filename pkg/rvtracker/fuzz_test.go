// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"math/big"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// FuzzResourceVersion checks parsing and order against apimachinery, and that the
// tracker's answer for a write at a and a store at b is what the order says.
func FuzzResourceVersion(f *testing.F) {
	seeds := []string{"", "0", "1", "9", "10", "007", "-1", "+1", " 1", "1 ", "x", "1x", "9223372036854775807",
		"9999999999999999999", "18446744073709551615", "18446744073709551616", "10000000000000000000",
		"340282366920938463463374607431768211455", "340282366920938463463374607431768211456", "\u0661"}
	for i, s := range seeds {
		f.Add(s, seeds[(i+1)%len(seeds)])
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		want, err := resourceversion.CompareResourceVersion(a, b)
		va, okA := parseVersion(a)
		vb, okB := parseVersion(b)
		if (okA && okB) != (err == nil) {
			t.Fatalf("%q and %q: parsed %v, %v; oracle %v", a, b, okA, okB, err)
		}
		if lo, ok := parseFast(a); ok && (!okA || va.lo != lo) {
			t.Fatalf("%q: the fast path accepts what the slow one does not", a)
		}
		if okA && va.String() != a {
			t.Fatalf("%q reads back as %q", a, va.String())
		}
		if err == nil {
			if got := va.compare(vb); got != want {
				t.Fatalf("compare(%q, %q) = %d, oracle %d", a, b, got, want)
			}
			if x, ok := new(big.Int).SetString(a, 10); !ok || x.Cmp(mustInt(t, b)) != want {
				t.Fatalf("the oracle is not numeric order for %q, %q", a, b)
			}
		}

		store := &hookedStore{}
		tr := New(Options{})
		tr.running = true
		woken := 0
		c := tr.ForController("c", map[schema.GroupResource]Store{pods: store}, func(types.NamespacedName) { woken++ })
		c.WroteAt(dsA, "u", pods, a)
		parked := c.EnsureReady(dsA) != nil
		if parked != okA {
			t.Fatalf("write at %q parked: %v", a, parked)
		}
		store.apply(b)
		pumpTracker(t, tr)
		ready := !okA || (err == nil && want <= 0)
		if parked && (woken == 1) != ready {
			t.Fatalf("write %q, store %q: woken %d, want ready %v", a, b, woken, ready)
		}
		if got := c.EnsureReady(dsA) == nil; got != ready {
			t.Fatalf("write %q, store %q: ready %v, want %v", a, b, got, ready)
		}
	})
}

func mustInt(t *testing.T, s string) *big.Int {
	i, ok := new(big.Int).SetString(s, 10)
	if !ok {
		t.Fatalf("not a number: %q", s)
	}
	return i
}
