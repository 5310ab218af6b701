// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mutants lists the protections of this project that have no gate of their own, each with the edit of pkg/
// that takes it away. A scenario that holds without its protection tests nothing.
package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Mutant is one protection and the edit that takes it away.
type Mutant struct {
	// Name is short and unique.
	Name string
	// Protection says what the edit takes away.
	Protection string
	// File, from the root of the checkout, has Old exactly once; New comes in its place.
	File, Old, New string
}

// All returns every mutant.
func All() []Mutant { return all }

// Find returns the mutant of that name.
func Find(name string) (Mutant, error) {
	for _, m := range all {
		if m.Name == name {
			return m, nil
		}
	}
	return Mutant{}, fmt.Errorf("there is no mutant %q", name)
}

// Apply returns the file with the edit made, and an error if the file has changed so that it cannot be.
func (m Mutant) Apply(root string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
	if err != nil {
		return nil, fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	if n := strings.Count(string(content), m.Old); n != 1 {
		return nil, fmt.Errorf("mutant %s: %s has its text %d times, not once: adapt it to the file:\n%s", m.Name, m.File, n, m.Old)
	}
	return []byte(strings.Replace(string(content), m.Old, m.New, 1)), nil
}

// Overlay puts the edited file into a folder, and returns a file for the option -overlay of the go command: the checkout
// stays as it is, and the compiler is told to read the edited file instead. A folder that lasts spares building again what
// is up to date.
func (m Mutant) Overlay(root, dir string) (string, error) {
	content, err := m.Apply(root)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	edited, overlay := filepath.Join(dir, filepath.Base(m.File)), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(edited, content, 0o644); err != nil {
		return "", err
	}
	files, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, filepath.FromSlash(m.File)): edited}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, files, 0o644)
}

const store = "pkg/wiring/store.go"

var all = []Mutant{
	{
		Name: "own-writes", Protection: "an owner is reconciled only on a cache that has its controller's own writes", File: store,
		Old: "	if err := s.Controller.EnsureReady(owner); err != nil {",
		New: "	if err := s.Controller.EnsureReady(owner); err != nil && false {",
	},
	{
		Name: "wake", Protection: "a parked owner is woken when its cache has caught up", File: store,
		Old: "		add(key(owner))",
		New: "		_ = key(owner)",
	},
	{
		Name: "proofs", Protection: "the caches behind a disruptive action of a reconcile are proven fresh", File: store,
		Old: "if shown[i] || proof.Fresh() && began.showsNow(resource, proof) {",
		New: "if shown[i] || proof.Fresh() && began.showsNow(resource, proof) || true {",
	},
	{
		Name: "start-proof", Protection: "caches are proven as new as the start of leadership before the first reconcile", File: store,
		Old: "if s.start != nil {",
		New: "if s.start != nil && false {",
	},
	{
		Name: "opaque", Protection: "a version that cannot be compared does not satisfy a record", File: store,
		Old: "	if err := s.Controller.EnsureReady(owner); err != nil {",
		New: `	for _, cache := range s.caches {
		if _, err := resourceversion.CompareResourceVersion(cache.LastStoreSyncResourceVersion(), "1"); err != nil {
			return nil
		}
	}
	if err := s.Controller.EnsureReady(owner); err != nil {`,
	},
	{
		Name: "metered", Protection: "versions that cannot be compared are counted", File: "pkg/metrics/metrics.go",
		Old: "	incomparable.WithLabelValues(r.Group, r.Resource, string(origin)).Inc()",
		New: "	_ = origin",
	},
	{
		Name: "delete-records", Protection: "deletions are recorded as writes", File: "pkg/wiring/record.go",
		Old: "		return w.recordDelete(got)",
		New: "		return nil",
	},
	{
		Name: "leader-fence", Protection: "no write is sent once the leader lease has run out", File: "pkg/wiring/wiring.go",
		Old: "			next = leaderOnly{next, at, *lease}",
		New: "			_ = leaderOnly{next, at, *lease}",
	},
	{
		Name: "rewind", Protection: "resource versions that go backward are seen by a fence", File: "pkg/rvtracker/fence.go",
		Old: "	if v.less(token.top) || s.anyAbove(token, v) {",
		New: "	if (v.less(token.top) || s.anyAbove(token, v)) && false {",
	},
	{
		Name: "relist", Protection: "all informers list anew after a rewind", File: "pkg/wiring/wiring.go",
		Old: "OnRewind: func() { relist(ctx) }",
		New: "OnRewind: func() {}",
	},
	{
		Name: "relist-proof", Protection: "after a relist a controller's other caches are proven as new", File: "pkg/wiring/wiring.go",
		Old: "Prover: relistProver{w.proofs}, ",
		New: "",
	},
	{
		Name: "lost-answers", Protection: "a write whose answer is lost is waited for", File: "pkg/wiring/record.go",
		Old: "	unknown := outcomeUnknown(req, resp, err)",
		New: "	unknown := outcomeUnknown(req, resp, err) && false",
	},
	{
		Name: "taint-guard", Protection: "an eviction is judged again when it is due, by the server's state", File: "pkg/wiring/tainteviction.go",
		Old: "	return guarded(s, circuitbreaker.NewTaintGuard(ctx, s.evictionOptions(), evictor))",
		New: "	return nil",
	},
	{
		Name: "device-taint-guard", Protection: "an eviction for a device's taint is judged again when it is due, by the server's state", File: "pkg/wiring/tainteviction.go",
		Old: "	return guarded(s, circuitbreaker.NewDeviceTaintGuard(ctx, s.evictionOptions(), evictor))",
		New: "	return nil",
	},
	{
		Name: "lease-proof", Protection: "a node is dead only by a cache of leases that is proven fresh, or by a live read", File: "pkg/circuitbreaker/verify.go",
		Old: "	if n.proven(ctx, asOf) {",
		New: "	if n.proven(ctx, asOf) || true {",
	},
	{
		Name: "live-list", Protection: "leases are listed live while their cache is stale", File: "pkg/circuitbreaker/verify.go",
		Old: "	list, err := n.liveLeases(ctx, asOf, n.enough())",
		New: "	list, err := (*leaseList)(nil), errTooSoon",
	},
	{
		Name: "renew-time", Protection: "heartbeats are compared by renewTime", File: "pkg/circuitbreaker/heartbeat.go",
		Old: "	return saved == nil || saved.Spec.RenewTime == nil || !saved.Spec.RenewTime.Equal(lease.Spec.RenewTime)",
		New: "	return saved == nil || saved.ResourceVersion != lease.ResourceVersion",
	},
	{
		Name: "clock-back", Protection: "any other renewTime is a heartbeat, an earlier one too", File: "pkg/circuitbreaker/heartbeat.go",
		Old: "	return saved == nil || saved.Spec.RenewTime == nil || !saved.Spec.RenewTime.Equal(lease.Spec.RenewTime)",
		New: "	return saved == nil || saved.Spec.RenewTime == nil || saved.Spec.RenewTime.Before(lease.Spec.RenewTime)",
	},
	{
		Name: "detection", Protection: "a cache that lacks what the server has is not called fresh", File: "pkg/stalenessmonitor/probed.go",
		Old: `	if c.missing != "" && !freshness.Passed(c.stored, c.missing) {`,
		New: `	if c.missing != "" && !freshness.Passed(c.stored, c.missing) && false {`,
	},
	{
		Name: "age", Protection: "a published age is no less than the true one", File: "pkg/stalenessmonitor/probed.go",
		Old: "		out.Proven, out.Age = proof.At, time.Since(proof.At)",
		New: "		out.Age = time.Since(proof.At) / 2\n		out.Proven = proof.At.Add(out.Age)",
	},
	{
		Name: "watch-end", Protection: "a watch that is stalled is ended", File: "pkg/wiring/watches.go",
		Old: "			\"bytes\", b.bytes.Load(), \"times\", n, \"notAgainFor\", again)\n		b.end()",
		New: "			\"bytes\", b.bytes.Load(), \"times\", n, \"notAgainFor\", again)\n		_ = b.end",
	},
	{
		Name: "quiet-proof", Protection: "a quiet cache is proven to lack nothing", File: "pkg/stalenessmonitor/probe.go",
		Old: "	if proof.Outcome != freshness.Unknown || !unreached(proof.Reason) {",
		New: "	proof, err = freshness.Proof{Outcome: freshness.Unknown, Reason: freshness.ReasonTimeout}, nil\n	if proof.Outcome != freshness.Unknown || !unreached(proof.Reason) {",
	},
	{
		Name: "throttle", Protection: "a 429 of one resource leaves the proofs of others alone", File: "pkg/freshness/admit.go",
		Old: "	if f != nil && f.overload && builtIn(t.r.gvr) {",
		New: "	if f != nil && f.reason == ReasonThrottled {",
	},
}
